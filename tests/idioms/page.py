"""Writes docs/coming-from-libtorch.md from the collections of idioms.

    python3 page.py PAGE.md            writes the page
    python3 page.py --check PAGE.md    fails if the page is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
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


def page() -> str:
    topics = [idioms.read(HERE / f"{name}.idioms") for name in (HERE / "topics.txt").read_text().split()]
    out = [(HERE / "introduction.md").read_text().rstrip(), "", *_summary(topics)]
    for topic in topics:
        out += _topic(topic)
    return "\n".join(out).rstrip() + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[-1])
    if "--check" in sys.argv:
        if target.read_text() != page():
            sys.exit(f"{target} is out of date: run python3 {Path(__file__).name} {target}")
    else:
        target.write_text(page())
