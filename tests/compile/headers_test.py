"""Compiles all public headers in one file, in both alphabetical orders, after the functions of operators.

A header that relies on what others include, or whose names are ambiguous beside theirs, does not compile in one of the
orders.

Usage: headers_test.py COMPILER FOLDER... -- FLAG...      with the folders of the rooms' headers
"""

import pathlib
import shutil
import subprocess
import sys

compiler = sys.argv[1]
folders = [pathlib.Path(folder) for folder in sys.argv[2 : sys.argv.index("--")]]
flags = sys.argv[sys.argv.index("--") + 1 :]
if shutil.which(compiler) is None:
    print(f"no {compiler}")
    sys.exit(77)

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
