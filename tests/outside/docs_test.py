"""Runs the blocks of docs/backends.md in order: writes a block with a file name to that file, and executes a `sh`
block.

    python3 docs_test.py PAGE.md PREFIX FOLDER
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import processes

page, prefix, folder = sys.argv[1:4]
shutil.rmtree(folder, ignore_errors=True)
Path(folder).mkdir(parents=True)
environment = {
    name: value for name, value in os.environ.items() if not name.startswith("MYTORCH_") and name != "LD_LIBRARY_PATH"
}
environment["MYTORCH"] = prefix
ran = 0
for kind, name, block in re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```", Path(page).read_text(), re.M | re.S):
    if name:
        Path(folder, name).write_text(block)
        continue
    assert kind == "sh", f"a {kind} block without a file name cannot be tested"
    done = processes.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{block}\nended with {done.returncode}:\n{done.stdout}")
    ran += 1
print(f"{ran} blocks ran")
sys.exit(0 if ran > 4 else 1)
