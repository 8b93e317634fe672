"""The C++ that is generated from ops.yaml: its width and its size. And how long lines are broken."""

import re
import tempfile
import unittest
from pathlib import Path

from codegen import cpp
from codegen.generate import CPP, ROOT, emit, write_all
from codegen.lock import check_and_update
from codegen.records import load

BYTES = 4_750_000
FILES_PER_OPERATOR, OTHER_FILES = 2, 130


class GeneratedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ops = load(str(ROOT / "ops.yaml"))
        files = emit(cls.ops, check_and_update(cls.ops, ROOT / "abi" / "ops.lock", "warn"))
        with tempfile.TemporaryDirectory() as folder:
            write_all(files, Path(folder))
            cls.files = [path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file()]
            cls.sources = {str(p): (Path(folder) / p).read_text() for p in cls.files if p.suffix in CPP}

    def test_no_line_is_longer_than_120_columns(self):
        long = {name for name, text in self.sources.items() if any(len(line) > 120 for line in text.split("\n"))}
        self.assertEqual(long, set())

    def test_what_several_records_share_is_said_once(self):
        self.assertLessEqual(sum(len(text.encode()) for text in self.sources.values()), BYTES)

    def test_no_file_serves_one_overload_alone(self):
        names = {op.schema.name for op in self.ops}
        self.assertLessEqual(len(self.files), FILES_PER_OPERATOR * len(names) + OTHER_FILES)


class WrappedTest(unittest.TestCase):
    def check(self, line: str, *expected: str):
        self.assertEqual(cpp.wrapped(line).split("\n"), list(expected))

    def test_a_line_that_fits_stays(self):
        self.check("x" * 120, "x" * 120)

    def test_lists_break_after_commas_outside_of_brackets(self):
        item = "item(first, second)"
        line = f"  int a[] = {{{', '.join([item] * 8)}}};"
        self.check(line, "  int a[] = {" + ", ".join([item] * 5) + ",", "      " + ", ".join([item] * 3) + "};")

    def test_a_body_goes_into_lines_of_its_own(self):
        head, body = "Tensor f(const Tensor& self, const Tensor& other)", f"return g({', '.join(['other'] * 12)});"
        self.check(f"{head} {{ {body} }}", f"{head} {{", f"  {body}", "}")

    def test_strings_go_on_in_literals_of_their_own(self):
        words = " ".join(["word"] * 40)
        broken = cpp.wrapped(f"    .doc = {cpp.text(words)},").split("\n")
        self.assertTrue(all(len(line) <= 120 for line in broken))
        self.assertEqual("".join(re.findall('"(.*)"', "\n".join(broken))), words)

    def test_comments_go_on_as_comments(self):
        words = ["word"] * 60
        broken = cpp.wrapped("  // " + " ".join(words)).split("\n")
        self.assertTrue(all(line.startswith("  // ") and len(line) <= 120 for line in broken))
        self.assertEqual(" ".join(line[5:] for line in broken).split(), words)

    def test_a_comment_behind_code_moves_above_it(self):
        comment = "// " + " ".join(["word"] * 20)
        self.check(
            f"  int number = function(argument);  {comment}", f"  {comment}", "  int number = function(argument);"
        )

    def test_angle_brackets_of_templates_are_brackets(self):
        first = "void function(" + ", ".join(["int64_t argument"] * 4) + ","
        second = "std::tuple<Tensor, Tensor, Tensor, Tensor> all, bool less = a < b, bool more = false);"
        self.check(f"{first} {second}", first, "    " + second)


if __name__ == "__main__":
    unittest.main()
