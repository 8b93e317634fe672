"""Runs ranks under MPI's launcher.

    python3 mpi_test.py MPIEXEC PROGRAM RANKS [ROLE]

Without a role all ranks must succeed; so they must with `limited`, where MPI is given counts up to 5 at a time (and
operands are smaller, because each call is then many), with `quick`, which leaves out a part for many ranks, and with
`checked`, where the signatures of all calls are compared, and with `messages`, where MPI has no windows. `late`, `dies`
and `ends` are what rank 1 does, `lost` and `stalled` what it does while the others wait for it at a window; the others
must end in time, and say so. With `differs`, rank 1 makes another call than the others, and all ranks must say
which. `huge` must succeed with tensors of more than 2^31 elements.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import needs
import processes

mpiexec, program, ranks, *role = sys.argv[1:]
needs.need("mpi", mpiexec)
limited, checked, messages = role == ["limited"], role in (["checked"], ["differs"]), role == ["messages"]
arguments = {"checked": [], "messages": ["window"]}.get("".join(role), role)  # of the ranks
if role in (["limited"], ["checked"], ["quick"], ["messages"]):
    role = []
environment = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_rmaps_base_oversubscribe="1",
    OMPI_MCA_btl_vader_single_copy_mechanism="none",  # containers refuse it
    # Calls that differ are seen without waiting for the deadline, which a rank on a busy machine might meet first.
    MYTORCH_DISTRIBUTED_TIMEOUT="120" if role in ([], ["huge"], ["differs"]) else "2",
    OMP_NUM_THREADS="1",
)
if limited:
    environment["MYTORCH_MPI_MAX_COUNT"] = "5"
if messages:
    environment["OMPI_MCA_osc"] = "^sm,rdma,ucx,pt2pt"
if checked:
    environment["MYTORCH_DISTRIBUTED_CHECK"] = "1"
command = [mpiexec, "-n", ranks]


def children(process: int) -> list[str]:
    """Returns the states of the processes that a process has started."""
    states = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if int(parent) == process:
            states.append(state)
    return states


begun = time.monotonic()
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a rank may outlive its launcher
    # Each rank writes to a file of its own: launchers pass on what ranks write in pieces, and mix them. What a rank saves
    # stays in the folder, too.
    rank = ["sh", "-c", 'cd "$0" && exec "$@" >"$$.log" 2>&1', folder, os.path.abspath(program), *arguments]
    with open(Path(folder, "launcher.log"), "w") as log:
        launched = processes.start([*command, *rank], env=environment, stdout=log, stderr=log)
    status = None
    while status is None and time.monotonic() - begun < 240:
        try:
            status = launched.wait(1)
        except subprocess.TimeoutExpired:
            # Open MPI's launcher at times does not end after ranks that it aborts.
            if role and time.monotonic() - begun > 15 and set(children(launched.pid)) <= {"Z"}:
                status = 1
    seconds = time.monotonic() - begun
    launched.kill()
    output = "\n".join(f"== {log.name}\n{log.read_text()}" for log in sorted(Path(folder).glob("*.log")))
expected = {
    "late": "rank 1 has not come: its last call is #1 barrier, finished",
    "dies": "rank 1 of group world has died",
    "ends": "rank 1 of group world has ended",
    "lost": "rank 1 of group world has died",
    "stalled": "not finished within 2 s: rank 1 has not come: its last call is #3 barrier, finished",
    "differs": "rank 0 calls all_reduce float32 (4,) sum; rank 1 calls broadcast float32 (4,) root 0",
}
if role == ["huge"]:
    if status != 0:
        sys.exit(f"status {status}:\n{output}")
elif not role:
    if status != 0 or len(re.findall(f"of {ranks} by", output)) < 4 * int(ranks):
        sys.exit(f"status {status}:\n{output}")
elif output.count(expected[role[0]]) < (int(ranks) if role == ["differs"] else 1) or status == 0 or seconds > 100:
    sys.exit(f"status {status} after {seconds:.1f} s, expected '{expected[role[0]]}':\n{output}")
print(f"{ranks} ranks {' '.join(role)}: {seconds:.1f} s")
