"""Reads the collections of idioms.

A collection, TOPIC.idioms, consists of paragraphs separated by blank lines: `# Title`, `## Section`, `prelude:` with
declarations that precede every idiom of the file, and idioms. An idiom is a statement or a short block in libtorch's
spelling. If mytorch spells it differently, lines that begin with `~~~` give the reason, and mytorch's spelling follows
them, if there is any:

    fc->forward(x);
    ~~~ Modules are values.
    fc.forward(x);
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Block:
    """A prelude or an idiom; `line` is the number of its first line."""

    line: int
    torch: list[str]
    reason: str = ""
    mytorch: list[str] = field(default_factory=list)
    mytorch_line: int = 0

    def differs(self) -> bool:
        return bool(self.reason)

    def missing(self) -> bool:
        return self.differs() and not self.mytorch

    def spelling(self, library: str) -> tuple[int, list[str]]:
        """Returns the first line's number and the lines, without any for an idiom that the library lacks."""
        if library == "mytorch" and self.differs():
            return self.mytorch_line, self.mytorch
        return self.line, self.torch


@dataclass
class Section:
    title: str
    idioms: list[Block] = field(default_factory=list)


@dataclass
class Topic:
    path: Path
    title: str
    prelude: Block
    sections: list[Section]

    @property
    def name(self) -> str:
        return self.path.stem

    def idioms(self) -> list[Block]:
        return [idiom for section in self.sections for idiom in section.idioms]


def _block(line: int, lines: list[str]) -> Block:
    marks = [k for k, text in enumerate(lines) if text.startswith("~~~")]
    if not marks:
        return Block(line, lines)
    first, last = marks[0], marks[-1]
    if marks != list(range(first, last + 1)) or first == 0:
        raise ValueError(f"line {line + first}: the lines of a reason follow the idiom and each other")
    reason = " ".join(text.removeprefix("~~~").strip() for text in lines[first : last + 1])
    if not reason:
        raise ValueError(f"line {line + first}: give the reason")
    return Block(line, lines[:first], reason, lines[last + 1 :], line + last + 1)


def read(path: Path) -> Topic:
    topic = Topic(path, "", Block(1, []), [])
    lines = path.read_text().splitlines()
    start = 0
    while start < len(lines):
        if not lines[start].strip():
            start += 1
            continue
        end = start
        while end < len(lines) and lines[end].strip():
            end += 1
        first = lines[start]
        if first.startswith("# "):
            topic.title = first[2:]
        elif first.startswith("## "):
            topic.sections.append(Section(first[3:]))
        elif first == "prelude:":
            topic.prelude = _block(start + 2, lines[start + 1 : end])
        else:
            if not topic.sections:
                topic.sections.append(Section(""))
            try:
                topic.sections[-1].idioms.append(_block(start + 1, lines[start:end]))
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
        start = end
    if not topic.title:
        raise ValueError(f"{path}: the first line is `# Title`")
    return topic


def adapt(lines: list[str]) -> list[str]:
    """Renames libtorch's macros: TORCH_CHECK is MYTORCH_CHECK. A namespace alias renames all else."""
    return [re.sub(r"\b(?:TORCH|AT)_(?=[A-Z_]+\b)", "MYTORCH_", text) for text in lines]
