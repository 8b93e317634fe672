"""The dispatcher's table of the schemas of released kernels."""

import tempfile
import unittest
from pathlib import Path

from codegen import emit_table
from codegen.lock import check_and_update
from codegen.records import load_text

FIRST = """\
- op: grown(Tensor self) -> Tensor
  doc: Grows.
  primitive: grown
  grad: none
"""
SECOND = FIRST.replace("(Tensor self)", "(Tensor self, int count=1)")
THIRD = FIRST.replace("(Tensor self)", "(Tensor self, int count=1, *, Scalar alpha=2)")


class TableTest(unittest.TestCase):
    def emitted(self, *versions: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ops.lock"
            for number, text in enumerate(versions):
                ops = load_text(text)
                lock = check_and_update(ops, path, mode="write", since=f"1.{number}")
            return "".join(emit_table.emit(ops, lock).values())

    def test_a_new_op_has_no_older_schema(self):
        self.assertNotIn("OlderSchema", self.emitted(THIRD))

    def test_older_schemas_name_the_first_field_that_they_lack(self):
        hashes = [load_text(text)[0].schema.hash for text in (FIRST, SECOND)]
        text = self.emitted(FIRST, SECOND, THIRD)
        self.assertIn(
            "constexpr OlderSchema kOlder[] = {\n"
            f"    {{0x{hashes[1]:016x}, offsetof(Args, alpha)}},\n"
            f"    {{0x{hashes[0]:016x}, offsetof(Args, count)}},\n"
            "};",
            text,
        )
        self.assertIn(".older = of_grown::kOlder});", text)

    def test_a_row_states_what_differs_from_the_defaults(self):
        text = self.emitted(THIRD)
        self.assertIn('    {.name = "self", .offset = offsetof(Args, self)},\n', text)
        self.assertIn('{.name = "alpha", .type = ArgType::kScalar, .kw_only = true, .default_text = "2", ', text)
        for field in (".optional", ".written", ".promotes", ".dynamic", ".outputs", ".accepts", ".programs"):
            self.assertNotIn(field, text)

    def test_nodes_have_the_operands_that_they_read(self):
        record = (
            "- op: f(Tensor self, *, Scalar by=2) -> Tensor\n  doc: F.\n  pointwise: self * by + 0.5\n  grad: none\n"
        )
        self.assertIn(
            "kNodes0[] = {input(offsetof(Args, self)), scalar(offsetof(Args, by)), constant(0.5), "
            'node("mul", 0, 1), node("add", 3, 2)};',
            self.emitted(record),
        )


if __name__ == "__main__":
    unittest.main()
