"""Compiles mistakes.cpp and checks that each marked line is an error with the text beside it.

Usage: mistakes_test.py COMPILER FLAG...

The test is skipped if there is no such compiler.
"""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import needs

source = pathlib.Path(__file__).parent / "mistakes.cpp"
compiler = sys.argv[1]
needs.need("clang" if "clang" in compiler else "gcc", compiler)
is_clang = "clang" in pathlib.Path(compiler).name
flags = ["-std=c++20", "-fsyntax-only", *(["-ferror-limit=0"] if is_clang else []), *sys.argv[2:]]
environment = {**os.environ, "LC_ALL": "C"}
run = subprocess.run([compiler, *flags, str(source)], capture_output=True, text=True, env=environment)

# The first error of each line of the file. GCC names the line of an error in a template before the error.
first_error = {}
required_from = None
for message in run.stderr.splitlines():
    at = re.search(r"mistakes\.cpp:(\d+):", message)
    if at and "required from here" in message:
        required_from = int(at[1])
    if ": error:" in message:
        line = int(at[1]) if at else required_from
        first_error.setdefault(line, message)
        required_from = None

failures = []
marks = 0
for number, line in enumerate(source.read_text().splitlines(), 1):
    marked = re.fullmatch(r"  (\S.*;) +//(>?) (.*)", line)
    if not marked:
        continue
    marks += 1
    mistake, first, texts = marked.groups()
    texts = texts.split(" | ")
    expected = texts[-1] if is_clang else texts[0]
    if f"mistakes.cpp:{number}:" not in run.stderr:
        failures.append(f"line {number} compiles: {mistake}")
    elif expected not in (first_error.get(number, "") if first and not is_clang else run.stderr):
        failures.append(f"no '{expected}' for line {number}: {mistake}\n  {first_error.get(number)}")
if failures:
    print(run.stderr)
print("\n".join(failures) or f"{marks} mistakes are refused")
sys.exit(bool(failures) or marks < 30)
