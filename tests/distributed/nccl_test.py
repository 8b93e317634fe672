"""Runs ranks on GPUs, one on each, connected by NCCL.

    python3 nccl_test.py MYTORCH PROGRAM [ROLE]

Without a role, groups of one rank, of two, and so on up to the number of GPUs must succeed; so must all with `checked`,
where the signatures of all calls are compared. With `late`, `late_replay` and `dies`, which need two GPUs, rank 1
sleeps before a call or the replay of a graph, or kills itself; the others must say so.
"""

import os
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import needs
import processes

mytorch, program, *role = sys.argv[1:]
count = processes.run([program, "gpus"], capture_output=True, text=True)
gpus = int(count.stdout) if count.returncode == 0 else 0
fails = role not in ([], ["checked"])
if gpus < (2 if fails else 1):
    print(f"SKIPPED: there is {'one' if gpus == 1 else 'no'} GPU here")
    sys.exit(needs.SKIPPED)

environment = dict(
    os.environ,
    NCCL_NVLS_ENABLE="0",  # multicast needs rights that containers lack
    MYTORCH_DISTRIBUTED_TIMEOUT="2" if fails else "120",
)
arguments = role
if role == ["checked"]:
    environment["MYTORCH_DISTRIBUTED_CHECK"] = "1"
    arguments = []


def launch(ranks: int):
    command = [mytorch, "launch", "--no-mpi", "--ranks", ranks, program, *arguments, "cuda"]
    return processes.run(command, env=environment, capture_output=True, text=True, timeout=200)


expected = {
    "late_replay": r"rank 1 has not come: its last call is #\d+ barrier, finished",
    "late": "rank 1 has not come: its last call is #1 barrier, finished",
    "dies": r"rank 1 \(process \d+, .*\) was killed by signal 9|rank 1 of group world has died",
}
begun = time.monotonic()
for ranks in [gpus] if role else range(1, gpus + 1):
    found = launch(ranks)
    output = f"{found.stdout}{found.stderr}"
    if not fails:
        holds = found.returncode == 0 and output.count(f"of {ranks} by nccl") >= 4 * ranks
    else:
        holds = found.returncode != 0 and re.search(expected[role[0]], output)
    if not holds:
        sys.exit(f"{ranks} ranks: status {found.returncode}:\n{output}")
print(f"up to {gpus} ranks {' '.join(role)}: {time.monotonic() - begun:.1f} s")
