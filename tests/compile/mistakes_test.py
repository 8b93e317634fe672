"""Compiles mistakes.cpp and checks that each marked line is an error with the text beside it.

Usage: mistakes_test.py COMPILER FLAG...
"""

import pathlib
import re
import subprocess
import sys

source = pathlib.Path(__file__).parent / "mistakes.cpp"
run = subprocess.run(
    [sys.argv[1], "-std=c++20", "-fsyntax-only", *sys.argv[2:], str(source)], capture_output=True, text=True
)
failures = []
for number, line in enumerate(source.read_text().splitlines(), 1):
    marked = re.fullmatch(r"  (\S.*;) +// (.*)", line)
    if not marked:
        continue
    mistake, expected = marked.groups()
    if f"mistakes.cpp:{number}:" not in run.stderr:
        failures.append(f"line {number} compiles: {mistake}")
    elif expected not in run.stderr:
        failures.append(f"no '{expected}' for line {number}: {mistake}")
if failures:
    print(run.stderr)
print("\n".join(failures) or "every mistake is refused")
sys.exit(bool(failures))
