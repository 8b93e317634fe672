"""Compiles all public headers in one file, in both alphabetical orders, after the functions of operators.

A header that relies on what others include, or whose names are ambiguous beside theirs, does not compile in one of the
orders.

Usage: headers_test.py COMPILER FOLDER... -- FLAG...      with the folders of the rooms' headers
"""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import needs

compiler = sys.argv[1]
folders = [pathlib.Path(folder) for folder in sys.argv[2 : sys.argv.index("--")]]
flags = sys.argv[sys.argv.index("--") + 1 :]
needs.need("clang" if "clang" in compiler else "gcc", compiler)

# Needs Eigen.
optional = {"mytorch/eigen.h"}
headers = sorted({str(path.relative_to(folder)) for folder in folders for path in folder.rglob("*.h")} - optional)
failures = 0
for order in headers, headers[::-1]:
    text = "".join(f'#include "{header}"\n' for header in ["mytorch/ops.h", *order])
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-xc++", "-", *flags]
    run = subprocess.run(command, input=text, text=True, stderr=subprocess.PIPE)
    if run.returncode:
        print(run.stderr)
        failures += 1
print(f"{len(headers)} headers")
sys.exit(bool(failures) or len(headers) < 100)
