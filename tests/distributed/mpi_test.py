"""Runs ranks under MPI's launcher.

    python3 mpi_test.py MPIEXEC PROGRAM RANKS [ROLE]

Without a role all ranks must succeed. `late`, `dies` and `ends` are what rank 1 does; the others must end in time, and
say so.
"""

import os
import re
import subprocess
import sys
import time

mpiexec, program, ranks, *role = sys.argv[1:]
environment = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_rmaps_base_oversubscribe="1",
    OMPI_MCA_btl_vader_single_copy_mechanism="none",  # containers refuse it
    MYTORCH_DISTRIBUTED_TIMEOUT="2" if role else "120",
    OMP_NUM_THREADS="1",
)
command = [mpiexec, "-n", ranks]
if role == ["dies"] and b"Open MPI" in subprocess.run([mpiexec, "--version"], capture_output=True).stdout:
    command += ["--mca", "orte_abort_on_non_zero_status", "0", "--enable-recovery"]  # the ranks find out themselves
begun = time.monotonic()
found = subprocess.run([*command, program, *role], env=environment, capture_output=True, text=True, timeout=240)
seconds = time.monotonic() - begun
output = found.stdout + found.stderr
expected = {
    "late": "rank 1 has not come: its last call is #1 barrier, finished",
    "dies": "rank 1 of group world has died",
    "ends": "rank 1 of group world has ended",
}
if not role:
    if found.returncode != 0 or len(re.findall(f"of {ranks} by", output)) < 9:
        sys.exit(f"status {found.returncode}:\n{output}")
elif expected[role[0]] not in output or found.returncode == 0 or seconds > 20:
    sys.exit(f"status {found.returncode} after {seconds:.1f} s, expected '{expected[role[0]]}':\n{output}")
print(f"{ranks} ranks {' '.join(role)}: {seconds:.1f} s")
