"""Processes that a test starts. They end with it: at a time limit, CTest kills the process of the test alone."""

import shutil
import subprocess
from collections.abc import Sequence

_TIED = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") is not None else []


def run(command: Sequence[object], **options: object) -> subprocess.CompletedProcess:
    """Does what subprocess.run does."""
    return subprocess.run([*_TIED, *map(str, command)], **options)


def start(command: Sequence[object], **options: object) -> subprocess.Popen:
    """Does what subprocess.Popen does. The thread that calls this must outlive the process."""
    return subprocess.Popen([*_TIED, *map(str, command)], **options)
