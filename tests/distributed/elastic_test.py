"""Tests training that goes on after a rank has died.

python3 elastic_test.py MYTORCH ELASTIC MPIEXEC
"""

import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import needs
import processes

mytorch, program, mpiexec = sys.argv[1:]
needs.need("mpi", mpiexec)
environment = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_btl_vader_single_copy_mechanism="none",  # containers refuse it
    OMP_NUM_THREADS="1",
    CUDA_VISIBLE_DEVICES="-1",
)


def train(folder, *arguments, options=()):
    """Returns the result of a run, and the steps, ranks and losses that it has printed."""
    command = [mytorch, "launch", "--mpi", "--ranks", "3", *options, program, folder, "20", *arguments]
    found = processes.run(command, capture_output=True, text=True, timeout=120, env=environment)
    lines = re.findall(r"step (\d+) of 20, (\d+) ranks: loss (\S+)", found.stdout)
    return found, [(int(step), int(ranks), float(loss)) for step, ranks, loss in lines]


def check(holds, what):
    if not holds:
        sys.exit(f"{what}:\n{found.stdout}{found.stderr}")


with tempfile.TemporaryDirectory() as top:
    found, lines = train(f"{top}/whole")
    check(found.returncode == 0 and [line[:2] for line in lines] == [(i, 3) for i in range(1, 21)], "no failure")
    expected = [loss for _, _, loss in lines]
    check(expected[-1] < expected[0] - 0.5, "it learns")

    # One that dies ends the others, and is named. Two ranks go on from a checkpoint. The save of step 8 has waited for
    # that of step 4.
    found, lines = train(f"{top}/restarts", "1:9", options=("--restarts", "2", "--min-ranks", "1"))
    check(re.search(r"rank 1\b.*(signal 9|died)|RANK 1\b", found.stderr + found.stdout, re.DOTALL), "its name")
    check(found.returncode == 0 and "restart 1 of 2, with 2 ranks" in found.stderr, "a restart")
    again = [line for line in lines if line[1] == 2]
    check(again[0][0] in (5, 9) and [line[0] for line in again] == list(range(again[0][0], 21)), "from a checkpoint")
    for step, ranks, loss in lines:
        check(abs(loss - expected[step - 1]) < 1e-4, f"step {step} of {ranks} ranks: expected {expected[step - 1]}")
    names = sorted(path.name for path in Path(top).iterdir())
    check([name for name in names if name.startswith("restarts")] == ["restarts"], f"{names} are left")

    # A run that is started once more has nothing to do; a longer one goes on.
    found, lines = train(f"{top}/restarts")
    check(found.returncode == 0 and lines == [], "nothing to do")
print("training goes on")
