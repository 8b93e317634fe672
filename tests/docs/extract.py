"""Writes the blocks of C++ and C in the documentation to files.

    python3 extract.py OUT_DIR FILE.md...

Prints a line for each file: `program` and the path of one that has a `main` and is run, or `unit` and the path of one
that is only compiled. A block with a `main` is a program. All other blocks of C++ of a page are one unit, each in a
namespace of its own, with their includes at the top; each block of C is a unit by itself.

A block that includes a header of mytorch stands at namespace scope. Any other block stands in a function. What it needs
and the text does not show stands in a comment directly before it, which also puts it in a function:

    <!-- setup: mytorch::Tensor x = mytorch::ones({2, 3}); -->

`<!-- declarations -->`, or `<!-- declarations: CODE -->`, puts the block at namespace scope instead, behind CODE. A block
may also be a copy of code in ops/, where a build compiles it. The blocks of some pages have tests of their own.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The blocks of these pages have their own tests: tests/docs/contributing.py, tests/outside, tests/idioms.
TESTED_ELSEWHERE = {"contributing.md", "backends.md", "coming-from-libtorch.md"}
BLOCK = re.compile(
    r"(?:^ *<!-- (?P<scope>setup|declarations)(?:: (?P<before>(?:(?!-->)[^`])*?))? -->\n\n?)?"
    r"^(?P<indent> *)```(?P<language>cpp|c|c\+\+|cuda)\b.*\n(?P<code>(?:.*\n)*?) *```$",
    re.M,
)
INCLUDE = re.compile(r"^#include .*\n", re.M)


@dataclass(frozen=True)
class Block:
    line: int  # of the page, where the code begins
    language: str
    code: str
    scope: str  # "setup", "declarations", or "" without a comment
    before: str  # the code of the comment

    @property
    def is_program(self) -> bool:
        return "int main" in self.code

    @property
    def is_whole(self) -> bool:
        """Whether it stands at namespace scope and states its includes."""
        return not self.scope and re.search(r'#include ["<]mytorch/', self.code) is not None


def blocks_of(text: str) -> list[Block]:
    found = []
    for match in BLOCK.finditer(text):
        code = re.sub(f"^{match['indent']}", "", match["code"], flags=re.M)
        line = text.count("\n", 0, match.start("code")) + 1
        found.append(Block(line, match["language"], code, match["scope"] or "", match["before"] or ""))
    return found


def compact(code: str) -> str:
    """Returns code without white space, and without the namespaces that a definition outside of them names."""
    return re.sub(r"\s|composite::|shape::", "", code)


def without_includes(code: str) -> str:
    return INCLUDE.sub("\n", code)  # lines keep their numbers


def unit(page: Path, blocks: list[Block]) -> str:
    """Returns one translation unit with all blocks, whose errors name the page and its lines."""
    includes = {'#include "mytorch/mytorch.h"\n': None}
    for block in blocks:
        includes.update(dict.fromkeys(INCLUDE.findall(block.before + "\n" + block.code)))
    text = ["".join(includes)]
    for block in blocks:
        in_function = not block.is_whole and block.scope != "declarations"
        text.append(f"\nnamespace block_{block.line} {{\n")
        text.append(f"[[maybe_unused]] void run() {{\n{block.before}\n" if in_function else f"{block.before}\n")
        text.append(f'#line {block.line} "{page.name}"\n{without_includes(block.code)}')
        text.append("}\n}\n" if in_function else "}\n")
    return "".join(text)


def write(path: Path, text: str) -> Path:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    bodies = [compact(path.read_text()) for path in sorted((ROOT / "ops").rglob("*.cpp"))]
    for name in sys.argv[2:]:
        page = Path(name)
        if page.name in TESTED_ELSEWHERE:
            continue
        stem = page.stem.lower()
        parts = []
        for i, block in enumerate(blocks_of(page.read_text())):
            if block.is_program:
                print("program", write(out / f"{stem}_{i}.cpp", block.code))
            elif block.language == "c":
                print("unit", write(out / f"{stem}_{i}.c", block.code))
            elif block.scope or block.is_whole or not any(compact(block.code) in body for body in bodies):
                parts.append(block)
        if parts:
            print("unit", write(out / f"{stem}_blocks.cpp", unit(page, parts)))


if __name__ == "__main__":
    main()
