"""Prints docs/coming-from-libtorch.md, continued by the collections of idioms, as the website has it.

    python3 page.py [--check]    --check: only compares the page's numbers of idioms with the collections
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
INTRODUCTION = HERE.parent.parent / "docs" / "coming-from-libtorch.md"
sys.path.insert(0, str(HERE))
import idioms  # noqa: E402


def _code(*blocks: list[str]) -> list[str]:
    out = ["```cpp"]
    for k, block in enumerate(blocks):
        # Short idioms stand together; an empty line sets off a block of several lines.
        if k > 0 and (len(block) > 1 or len(blocks[k - 1]) > 1):
            out.append("")
        out += block
    return [*out, "```", ""]


def _differences(different: list[idioms.Block]) -> list[str]:
    """Returns the idioms in order, except that those with the same reason stand together."""
    out = []
    for reason in dict.fromkeys(idiom.reason for idiom in different):
        out += [reason, ""]
        for idiom in different:
            if idiom.reason == reason:
                mytorch = idiom.mytorch or ["// none"]
                out += _code(["// libtorch", *idiom.torch], ["// mytorch", *mytorch])
    return out


def _topic(topic: idioms.Topic) -> list[str]:
    out = [f"## {topic.title}", ""]
    different = [idiom for idiom in topic.idioms() if idiom.differs()]
    if different:
        out += ["### Differences", ""]
        out += _differences(different)
        out += ["### The same", ""]
    out += ["The idioms of this topic share these declarations:", "", *_code(topic.prelude.torch)]
    for section in topic.sections:
        same = [idiom.torch for idiom in section.idioms if not idiom.differs()]
        if same:
            out += [f"{section.title}:", ""] if section.title else []
            out += _code(*same)
    return out


def _summary(topics: list[idioms.Topic]) -> list[str]:
    out = ["| topic | idioms | compile as they are |", "|---|---:|---:|"]
    total = same = 0
    for topic in topics:
        all_, differ = len(topic.idioms()), sum(idiom.differs() for idiom in topic.idioms())
        anchor = "".join(c for c in topic.title.lower().replace(" ", "-") if c.isalnum() or c == "-")
        out.append(f"| [{topic.title}](#{anchor}) | {all_} | {all_ - differ} |")
        total += all_
        same += all_ - differ
    return [*out, f"| all | {total} | {same} ({100 * same / total:.1f} %) |", ""]


def topics() -> list[idioms.Topic]:
    return [idioms.read(HERE / f"{name}.idioms") for name in (HERE / "topics.txt").read_text().split()]


def listed() -> str:
    """Returns the idioms by topic: those that mytorch spells differently, with the reason, then the others."""
    out = _summary(topics())
    for topic in topics():
        out += _topic(topic)
    return "\n".join(out).rstrip() + "\n"


def check() -> None:
    all_ = [idiom for topic in topics() for idiom in topic.idioms()]
    same = sum(not idiom.differs() for idiom in all_)
    if f"Of {len(all_)} everyday idioms of libtorch, {same} compile" not in INTRODUCTION.read_text():
        sys.exit(f"{INTRODUCTION} has other numbers than these: of {len(all_)} idioms, {same} compile as they are")


if __name__ == "__main__":
    if "--check" in sys.argv:
        check()
    else:
        print(INTRODUCTION.read_text() + "\n" + listed(), end="")
