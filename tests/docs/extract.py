"""Writes each block of C++ or C in the documentation to a file.

    python3 extract.py OUT_DIR FILE.md...

Prints a line for each file: `program`, if it has a `main` and is run, or `unit`, which is only compiled, and the path.
A block that is neither must be a copy of code in ops/, or in a page that has a test of its own; anything else is an
error.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The blocks of these pages have their own tests: tests/docs/contributing.py, tests/outside, tests/idioms.
TESTED_ELSEWHERE = {"contributing.md", "backends.md", "coming-from-libtorch.md"}


def compact(code: str) -> str:
    """Returns code without white space, and without the namespaces that a definition outside of them names."""
    return re.sub(r"\s|composite::|shape::", "", code)


out = Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
bodies = [compact(path.read_text()) for path in sorted((ROOT / "ops").glob("*.cpp"))]
failures = []
for name in sys.argv[2:]:
    page = Path(name)
    if page.name in TESTED_ELSEWHERE:
        continue
    text = page.read_text()
    for i, match in enumerate(re.finditer(r"^( *)```(cpp|c|c\+\+|cuda)\b.*\n((?:.*\n)*?) *```$", text, re.M)):
        block = re.sub(f"^{match[1]}", "", match[3], flags=re.M)
        kind = "program" if "int main" in block else "unit"
        if kind == "unit" and '#include "mytorch/' not in block:
            if not any(compact(block) in body for body in bodies):
                line = text.count("\n", 0, match.start()) + 1
                failures.append(
                    f"{name}:{line}: nothing compiles this block: make it a program or a unit with includes"
                )
            continue
        path = out / f"{page.stem.lower()}_{i}.{'c' if match[2] == 'c' else 'cpp'}"
        if not path.exists() or path.read_text() != block:
            path.write_text(block)
        print(kind, path)
if failures:
    sys.exit("\n".join(failures))
