"""Writes the test of a collection of idioms as C++.

    python3 generate.py TOPIC.idioms OUT.cpp [LIBRARY]

LIBRARY is mytorch (the default), or torch to check that libtorch accepts the idioms too. Every idiom becomes a function
in which `torch` means `mytorch`; main.cpp calls them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import idioms  # noqa: E402

HEAD = {
    "mytorch": """#include "mytorch/mytorch.h"

namespace torch = mytorch;
namespace at = mytorch;
namespace c10 = mytorch;
""",
    "torch": "#include <torch/torch.h>\n",
}
STANDARD = """algorithm chrono cmath cstdio cstring iostream iterator limits memory optional sstream stdexcept string tuple
utility vector"""


def emit(topic: idioms.Topic, library: str, skip: frozenset[int] = frozenset()) -> str:
    """Returns the test of the idioms, except those that begin at the lines in `skip`."""

    def lines_of(block: idioms.Block) -> list[str]:
        line, lines = block.spelling(library)
        return [f'#line {line} "{topic.path.name}"', *(idioms.adapt(lines) if library == "mytorch" else lines)]

    out = [f"// Generated from {topic.path.name}.", HEAD[library].rstrip()]
    out += [f"#include <{name}>" for name in STANDARD.split()]
    out += ["", '#include "tests/idioms/idioms.h"', "", "namespace {", ""]
    tested = [block for block in topic.idioms() if block.spelling(library)[1] and block.line not in skip]
    for block in tested:
        out += [f"void {topic.name}_{block.line}() {{", *lines_of(topic.prelude), "{", *lines_of(block), "}", "}", ""]
    entries = ", ".join(f"{{{block.line}, {topic.name}_{block.line}}}" for block in tested)
    out += [f'const idioms::Topic {topic.name}_topic("{topic.name}", {{{entries}}});', "", "}  // namespace", ""]
    return "\n".join(out)


if __name__ == "__main__":
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    text = emit(idioms.read(source), sys.argv[3] if len(sys.argv) > 3 else "mytorch")
    if not target.exists() or target.read_text() != text:
        target.write_text(text)
