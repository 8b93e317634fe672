"""Prints the idioms that are marked as different but compile as they are, so that the marks can go.

    python3 stale.py COMPILER FLAG...    flags as in tests/compile/CMakeLists.txt, and -I of the repository

An idiom that compiles and means something else keeps its mark.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import generate  # noqa: E402
import idioms  # noqa: E402


def failing_lines(topic: idioms.Topic, command: list[str]) -> set[int]:
    """Returns the lines of the topic's file that errors name, directly or as the place of an instantiation."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, f"{topic.name}.cpp")
        source.write_text(generate.emit(topic, "mytorch"))
        done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    return {int(line) for line in re.findall(rf"{topic.path.name}:(\d+)", done.stderr)}


def main() -> None:
    command = [*sys.argv[1:], "-std=c++20", "-w", "-fsyntax-only", "-fmax-errors=0"]
    for path in sorted(HERE.glob("*.idioms")):
        topic = idioms.read(path)
        for section in topic.sections:
            marked = [idiom for idiom in section.idioms if idiom.differs()]
            section.idioms = [idioms.Block(idiom.line, idiom.torch) for idiom in marked]
        failing = failing_lines(topic, command)
        for idiom in topic.idioms():
            if not failing & set(range(idiom.line, idiom.line + len(idiom.torch))):
                print(f"{path.name}:{idiom.line}: {idiom.torch[0]}")


if __name__ == "__main__":
    main()
