"""Runs ranks on two hosts that TCP connects: two network namespaces on this machine.

    python3 two_hosts_test.py MPIEXEC PROGRAM [cut]

Each host has a name, an interface and shared memory of its own; a pair of virtual interfaces joins them. Open MPI starts
one rank on each, and all checks of a group must succeed. With `cut`, the link goes down while the ranks communicate,
and both must end at their deadline with an error that names the other one. Nothing is left behind, also when the test
is killed: all processes are in a namespace whose first one is this.
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

mpiexec, program, *role = sys.argv[1:]
needs.need("mpi", mpiexec)
ip = needs.need("iproute2", "ip")
for tool in ("unshare", "nsenter", "setpriv"):
    needs.need("util-linux", tool)
ADDRESSES = ("10.77.0.1", "10.77.0.2")
SPACES = ("--net", "--uts", "--ipc")
LINK = "wire0"  # the interface
PORT = "29500"  # of the store, in a namespace of its own


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(needs.SKIPPED)


if b"www.open-mpi.org" not in processes.run([mpiexec, "--version"], capture_output=True).stdout:
    skip("no Open MPI here, whose launcher takes an agent")


def alone():
    """Goes on as the first process of a namespace, with which all others end."""
    if os.getpid() == 1:
        return
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    tried = processes.run([*command, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        skip(f"no namespaces here ({tried.stderr.strip()})")
    os.execvp(command[0], [*command, sys.executable, *sys.argv])


class Host:
    """A process that holds the namespaces of a host."""

    def __init__(self, number):
        hold = f"hostname host{number} && echo up && exec sleep infinity"
        self.holder = processes.start(
            ["unshare", *SPACES, "sh", "-c", hold], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if self.holder.stdout.readline() != b"up\n":
            skip(f"no namespaces here ({self.holder.stderr.read().decode().strip()})")
        self.enter = ["nsenter", "--target", str(self.holder.pid), *SPACES]

    def ip(self, *arguments, **options):
        return processes.run([*self.enter, ip, *arguments], stderr=subprocess.PIPE, text=True, **options)


def joined_hosts():
    hosts = [Host(number) for number in (1, 2)]
    # The second end is made in its namespace.
    peer = ["peer", "name", LINK, "netns", hosts[1].holder.pid]
    made = hosts[0].ip("link", "add", "name", LINK, "type", "veth", *peer)
    if made.returncode != 0:
        skip(f"no virtual interfaces here ({made.stderr.strip()})")
    for host, address in zip(hosts, ADDRESSES):
        host.ip("link", "set", "lo", "up", check=True)
        host.ip("address", "add", f"{address}/24", "dev", LINK, check=True)
        host.ip("link", "set", LINK, "up", check=True)
    return hosts


def launch(hosts, folder):
    """Starts one rank on each host. Each writes to a file of its own."""
    # Instead of ssh: its arguments are a host and a command.
    agent = Path(folder, "agent")
    agent.write_text(f'#!/bin/sh\nshift\nexec {" ".join(hosts[1].enter)} sh -c "$*"\n')
    agent.chmod(0o755)
    environment = dict(
        os.environ,
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        OMP_NUM_THREADS="1",
        MASTER_ADDR=ADDRESSES[0],
        MASTER_PORT=PORT,
        MYTORCH_DISTRIBUTED_TIMEOUT="4" if role else "120",
    )
    passed = [name for name in environment if name.startswith(("MYTORCH", "MASTER", "OMP_"))]
    command = [*hosts[0].enter, mpiexec, "-n", "2", "--host", ",".join(f"{address}:1" for address in ADDRESSES)]
    for name in passed:
        command += ["-x", name]
    for name, value in {
        "plm_rsh_agent": str(agent),
        "btl": "tcp,self",
        "btl_tcp_if_include": LINK,
        "oob_tcp_if_include": LINK,
    }.items():
        command += ["--mca", name, value]
    run = 'cd "$0" && exec "$@" >"$(hostname).log" 2>&1'
    rank = ["sh", "-c", run, folder, os.path.abspath(program), *(role or ["quick"])]
    with open(Path(folder, "launcher.log"), "w") as log:
        return processes.start([*command, *rank], env=environment, stdout=log, stderr=log)


def logs(folder):
    return {log.stem: log.read_text() for log in sorted(Path(folder).glob("*.log"))}


def fail(what, folder):
    sys.exit("\n".join([what, *(f"== {name}\n{text}" for name, text in logs(folder).items())]))


def until(holds, seconds):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


alone()
begun = time.monotonic()
hosts = joined_hosts()
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    launched = launch(hosts, folder)
    if role:
        both = lambda part: until(lambda: all(part in logs(folder).get(f"host{n}", "") for n in (1, 2)), 60)
        if not both("communicates"):
            fail("the ranks have not begun", folder)
        hosts[0].ip("link", "set", LINK, "down", check=True)
        if not both("not finished within 4 s"):
            fail("the ranks have not ended", folder)
        found = logs(folder)
        if "rank 1 does not answer: it is stopped or cut off" not in found["host1"]:
            fail("rank 0 does not name rank 1", folder)
        if not re.search(r"the process that serves it, rank 0, has ended or is stopped", found["host2"]):
            fail("rank 1 does not name rank 0", folder)
    else:
        if not until(lambda: launched.poll() is not None, 240) or launched.returncode != 0:
            fail(f"status {launched.poll()}", folder)
        found = logs(folder)
        for number in (1, 2):
            if not re.search(rf"rank {number - 1} of 2 by mpi", found.get(f"host{number}", "")):
                fail(f"rank {number - 1} was not on host {number}", folder)
print(f"two hosts {' '.join(role)}: {time.monotonic() - begun:.1f} s")
