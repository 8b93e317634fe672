"""Programs that a test needs and a machine may lack. A test without its program is skipped, and says why.

MYTORCH_TEST_WITHOUT names things that tests take for absent, separated by commas: mpi, clang, iproute2 and chromium
here, gpu in tests/environment.cmake, and avx3 (AVX-512) in cpu-openmp. So one machine can run every test without what
it needs.
"""

import os
import shutil
import sys

SKIPPED = 77  # the exit status that CTest takes for a skipped test


def absent(thing: str) -> bool:
    return thing in os.environ.get("MYTORCH_TEST_WITHOUT", "").split(",")


def find(thing: str, *programs: str) -> str | None:
    """Returns the first of the programs that is installed, or None if there is none or `thing` counts as absent."""
    if absent(thing):
        return None
    return next((path for path in map(shutil.which, programs) if path is not None), None)


def need(thing: str, *programs: str) -> str:
    """Returns what find() does. Without a program, ends the process, which skips the test."""
    path = find(thing, *programs)
    if path is None:
        print(f"SKIPPED: no {thing} here ({', '.join(programs)})")
        sys.exit(SKIPPED)
    return path
