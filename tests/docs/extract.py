"""Writes each C++ program in the documentation to a file.

    python3 extract.py OUT_DIR FILE.md...

A program is a ```cpp block that contains `int main`. Prints the paths of the files.
"""

import re
import sys
from pathlib import Path

out = Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
for name in sys.argv[2:]:
    blocks = re.findall(r"^```cpp\n(.*?)^```", Path(name).read_text(), re.M | re.S)
    for i, block in enumerate(b for b in blocks if "int main" in b):
        path = out / f"{Path(name).stem.lower()}_{i}.cpp"
        if not path.exists() or path.read_text() != block:
            path.write_text(block)
        print(path)
