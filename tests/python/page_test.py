"""Runs the programs of docs/python.md."""

import re
import unittest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


class Page(unittest.TestCase):
    def test_programs(self):
        programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
        self.assertGreaterEqual(len(programs), 3)
        for program in programs:
            with self.subTest(program=program):
                exec(compile(program, str(PAGE), "exec"), {})


if __name__ == "__main__":
    unittest.main()
