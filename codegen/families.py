"""The families of operators: the sections of ops.yaml, each under a line `# ==== FAMILY: title ====`.

A family has the same name everywhere: in ops/FAMILY/, conformance/samples/FAMILY.yaml and backends/*/FAMILY/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SECTION = re.compile(r"^# ==== ([a-z]+): (.+?) ====+$")


@dataclass(frozen=True)
class Section:
    family: str
    title: str
    line: int


def sections(source: str) -> list[Section]:
    """Returns the sections of the text of a file of records, in order."""
    lines = enumerate(source.splitlines(), 1)
    return [Section(m[1], m[2], n) for n, line in lines if (m := _SECTION.match(line))]


def malformed(source: str) -> list[int]:
    """Returns the lines that look like the head of a section, but are none."""
    lines = enumerate(source.splitlines(), 1)
    return [n for n, line in lines if re.match(r"#\s*={3}", line) and not _SECTION.match(line)]


def family_of(found: list[Section], line: int) -> str:
    """Returns the family of the record at a line, or "" before the first section."""
    return next((s.family for s in reversed(found) if s.line <= line), "")
