"""Tests `mytorch launch`.

python3 launch_test.py MYTORCH RANKS_PROGRAM MPIEXEC
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import needs
import processes

mytorch, program, mpiexec = sys.argv[1:]


def launch(*arguments, path=None, **options):
    command = [mytorch, "launch", *arguments]
    if path is not None:
        command = ["env", f"PATH={path}", *command]
    return processes.run(command, capture_output=True, text=True, timeout=60, **options)


def run(*arguments, **options):
    return launch("--no-mpi", *arguments, **options)


def check(holds, what):
    if not holds:
        sys.exit(f"{what}:\n{found.stdout}{found.stderr}")


# Every rank has its number, and all the same address and key.
found = run(
    "--ranks", "3", "sh", "-c", 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT $MYTORCH_STORE_KEY"'
)
lines = sorted(found.stdout.split("\n"))[1:]
check(found.returncode == 0 and len(lines) == 3, "three ranks")
check([line.split()[:2] for line in lines] == [[f"{r}/3", str(r)] for r in range(3)], "ranks")
check(len({tuple(line.split()[2:]) for line in lines}) == 1, "one address")

# One that fails ends the others, and is named.
begun = time.monotonic()
found = run("--ranks", "3", "sh", "-c", 'test "$RANK" = 1 && exit 7; exec sleep 50')
check(found.returncode == 7 and re.search(r"rank 1 \(process \d+, sh\) exited with status 7", found.stderr), "status")
found = run("--ranks", "2", "sh", "-c", 'test "$RANK" = 1 && kill -9 $$; exec sleep 50')
check(found.returncode == 137 and "rank 1" in found.stderr and "signal 9" in found.stderr, "signal")
found = run(
    "--ranks",
    "2",
    "--patience",
    "0.5",
    "sh",
    "-c",
    'trap "" TERM; test "$RANK" = 1 && exit 2; while :; do sleep 0.1; done',
)
check(found.returncode == 2, "a rank that ignores SIGTERM")
found = run("--ranks", "2", "/no/such/program")
check(found.returncode == 127 and "/no/such/program" in found.stderr, "no program")
check(time.monotonic() - begun < 20, "time")

# A failure starts all ranks again, with fewer of them if that is allowed, until one run succeeds.
with tempfile.TemporaryDirectory() as folder:
    runs = Path(folder, "runs")
    # All ranks have said so before one fails.
    script = (
        f'echo "$MYTORCH_RESTARTS $RANK/$WORLD_SIZE" >> {runs}; '
        f'while test "$(grep -c "^$MYTORCH_RESTARTS " {runs})" -lt "$WORLD_SIZE"; do sleep 0.01; done; '
        'exec sh -c "$0"'
    )

    def restarted(*arguments, rank):
        """Runs ranks of which the last one fails in all runs that have more than 2 of them."""
        global found
        runs.write_text("")
        found = run(*arguments, "sh", "-c", script, rank)
        return sorted(line.split() for line in runs.read_text().splitlines())

    def ranks_of(restart, ranks):
        return [[str(restart), f"{rank}/{ranks}"] for rank in range(ranks)]

    fails = 'test "$WORLD_SIZE" = 2 && exit 0; test "$RANK" = 1 && kill -9 $$; exec sleep 50'
    lines = restarted("--ranks", "4", "--restarts", "3", "--min-ranks", "1", rank=fails)
    check(found.returncode == 0 and found.stderr.count("rank 1 ") == 2, "two failures")
    check("restart 1 of 3, with 3 ranks\n" in found.stderr and "restart 2 of 3, with 2 ranks" in found.stderr, "text")
    check(lines == ranks_of(0, 4) + ranks_of(1, 3) + ranks_of(2, 2), "runs")
    lines = restarted("--ranks", "3", "--restarts", "1", rank=fails)
    check(found.returncode == 137 and lines == ranks_of(0, 3) + ranks_of(1, 3), "as many ranks")
    lines = restarted("--ranks", "3", "--restarts", "2", "--min-ranks", "3", rank=fails)
    check(found.returncode == 137 and lines == ranks_of(0, 3) + ranks_of(1, 3) + ranks_of(2, 3), "the least")
    lines = restarted("--ranks", "2", "--restarts", "2", rank="exit 0")
    check(found.returncode == 0 and lines == ranks_of(0, 2) and found.stderr == "", "no failure")
found = run("--ranks", "2", "--restarts", "1", "--min-ranks", "3", "true")
check(found.returncode == 1 and "--min-ranks is 3, more than --ranks, 2" in found.stderr, "more than all")
# What is told to end is not started again.
launched = processes.start(
    [mytorch, "launch", "--no-mpi", "--ranks", "1", "--restarts", "5", "sh", "-c", "echo up; exec sleep 50"],
    stdout=subprocess.PIPE,
    text=True,
)
assert launched.stdout.readline() == "up\n"
launched.send_signal(signal.SIGTERM)
assert launched.wait(20) == 143 and launched.stdout.read() == ""
# It may finish what it does, and a signal of which the ranks end is none to start them again after.
for sent, script, status, said in (
    (signal.SIGTERM, 'trap "sleep 1; echo saved; exit 0" TERM; echo up; while :; do sleep 0.1; done', 143, "saved\n"),
    (signal.SIGHUP, "echo up; exec sleep 50", 129, ""),
):
    launched = processes.start(
        [mytorch, "launch", "--no-mpi", "--ranks", "1", "--restarts", "5", "sh", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launched.stdout.readline() == "up\n"
    launched.send_signal(sent)
    ended, found = launched.wait(30), launched.stdout.read()
    assert ended == status and found == said, (sent, ended, found)

# Signals are passed on.
launched = processes.start(
    [
        mytorch,
        "launch",
        "--no-mpi",
        "--ranks",
        "2",
        "sh",
        "-c",
        'trap "echo told $RANK; exit 0" USR1 INT; echo up; while :; do sleep 0.1; done',
    ],
    stdout=subprocess.PIPE,
    text=True,
)
assert launched.stdout.readline() == launched.stdout.readline() == "up\n"
launched.send_signal(signal.SIGUSR1)
assert sorted(launched.stdout.read().split("\n")) == ["", "told 0", "told 1"]
assert launched.wait(20) == 0

# Without MPI, processes on CPUs have no engine, and the error says what to do.
found = run("--ranks", "2", program)
check(found.returncode != 0 and "mytorch launch --mpi" in found.stderr, "no engine")
# Without a GPU, MPI's launcher is the default. Where it is missing, the error names its package.
environment = dict(os.environ, CUDA_VISIBLE_DEVICES="-1")
with tempfile.TemporaryDirectory() as empty:
    found = launch("--ranks", "2", program, path=empty, env=environment)
    check(found.returncode == 127 and "no GPU, and no mpirun" in found.stderr, "neither")
    check("openmpi-bin" in found.stderr and "rank" not in found.stdout, "the package")
    found = launch("--ranks", "2", "--mpi", program, path=empty)
    check(found.returncode == 127 and "openmpi-bin" in found.stderr, "no mpirun")
needs.need("mpi", mpiexec)
environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
environment["OMPI_MCA_btl_vader_single_copy_mechanism"] = "none"
found = launch("--ranks", "2", "--mpi", program, env=environment)
check(found.returncode == 0 and "rank 1 of 2 by mpi" in found.stderr, "by MPI")
check("no GPU" not in found.stderr, "a needless line")
found = launch("--ranks", "2", program, env=environment)
check(found.returncode == 0 and "rank 1 of 2 by mpi" in found.stderr, "by MPI without a GPU")
check(found.stderr.count("there is no GPU, so mpirun connects the ranks") == 1, "one line")
print("launch works")
