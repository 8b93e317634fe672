"""The operator reference matches the records, and its pages link to each other."""

import re
import unittest
from pathlib import Path

from codegen.generate import ROOT, emitter
from codegen.lock import Lock
from codegen.records import load, load_text

OPS = Path(__file__).resolve().parents[2] / "ops.yaml"
NEED_RANKS = ("send", "recv")  # a rank alone has nobody to write to

SMALL = """\
# ==== arithmetic: of two numbers =====

- op: scaled(Tensor self, Operand other, *, Scalar alpha=1) -> Tensor
  doc: self | alpha * other.
  forms: [method, inplace]
  pointwise: self + alpha * other
  grad: auto

- op: scaled.other(Tensor self) -> Tensor
  doc: An overload.
  composite: scaled_other
  kernel: optional
  grad: {self: grad}

# ==== sums: of many (docs/linalg.md) ====

- op: average(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor
  doc: The mean.
  promote: float
  reduce: {state: sum, step: 2 * self, final: sum / n}
  grad: {self: grad}

- op: product(Tensor self, Tensor index) -> (Tensor values, Tensor indices)
  doc: Something that only a kernel does.
  primitive: product
  types: {index: index}
  result: {indices: int64}
  grad: none
"""


class DocsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ops = load(str(OPS))
        cls.files = emitter(ROOT / "docs" / "emit.py").emit(cls.ops, Lock({}))

    def test_every_operator_has_one_section(self):
        sections = [m for page in self.files.values() for m in re.findall(r"^### `(.+)`$", page, re.M)]
        self.assertCountEqual(sections, [op.full_name for op in self.ops if not op.derived])

    def test_links_lead_somewhere(self):
        for name, page in self.files.items():
            for target, anchor in re.findall(r"\]\(([\w-]+\.md)(?:#(\w+))?\)", page):
                with self.subTest(page=name, target=target, anchor=anchor):
                    self.assertIn(f"docs/ops/{target}", self.files)
                    if anchor:
                        self.assertIn(f"\n## {anchor}\n", self.files[f"docs/ops/{target}"].lower())
        listed = re.findall(r"^\| \[`(\w+)`\]", self.files["docs/ops/index.md"], re.M)
        self.assertCountEqual(listed, {op.schema.name for op in self.ops if not op.derived})

    def test_tables_are_rectangular(self):
        for name, page in self.files.items():
            width = 0
            for line in page.splitlines():
                cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
                with self.subTest(page=name, line=line):
                    self.assertTrue(cells == 0 or width in (0, cells))
                width = cells

    def test_every_operator_has_declarations_an_example_and_its_gradient(self):
        for op in self.ops:
            if op.derived:
                continue
            pages = [p for p in self.files.values() if f"### `{op.full_name}`\n" in p]
            section = pages[0].split(f"### `{op.full_name}`\n")[1].split("\n## ")[0].split("\n### ")[0]
            with self.subTest(op=op.full_name):
                self.assertIn(str(op.schema), section)
                self.assertIn(op.doc, section)
                self.assertIn("**Gradient:**", section)
                self.assertRegex(section, rf"```cpp\nnamespace mytorch {{\n.+ {op.schema.name}\(.*\);\n")
                if op.full_name not in NEED_RANKS:
                    example = rf"int main\(\) {{\n(  .+\n)*  .*mytorch::{op.schema.name}\(.*\);\n}}\n```"
                    self.assertRegex(section, example)
                self.assertEqual("A primitive:" in section, op.meaning == "primitive")
                self.assertNotIn("\n\n\n", section)

    def test_error_samples_are_told(self):
        self.assertIn(
            '- `self=(2, 3), other=(4, 5)`: "inner dimensions 3 and 4 differ"', self.files["docs/ops/matrix.md"]
        )

    def test_a_small_file(self):
        samples = {
            "product": [
                {"op": "product", "args": {"self": {"shape": [3], "dtype": "bool"}, "index": None}, "error": "no index"}
            ]
        }
        files = emitter(ROOT / "docs" / "emit.py").pages(load_text(SMALL), SMALL, samples, {"product": ["run();"]})
        self.assertEqual(set(files), {f"docs/ops/{n}.md" for n in ("index", "arithmetic", "sums")})
        arithmetic, sums = files["docs/ops/arithmetic.md"], files["docs/ops/sums.md"]
        # Overloads are on one page, that of the first.
        self.assertIn("### `scaled.other`", arithmetic)
        self.assertIn("```\nself + alpha * other\n```", arithmetic)
        for declaration in (
            "Tensor scaled(const Tensor& self, const Operand& other, const Scalar& alpha = 1);",
            "const Tensor& scaled_(const Tensor& self, const Operand& other, const Scalar& alpha = 1);",
            "const Tensor& scaled_out(const Tensor& out, const Tensor& self, const Operand& other, "
            "const Scalar& alpha = 1);",
            "Tensor scaled(const Operand& other, const Scalar& alpha = 1) const;  // a method of Tensor",
        ):
            self.assertIn(f"\n{declaration}\n", arithmetic)
        self.assertIn("| `alpha` | Scalar | `1` |  |", arithmetic)
        self.assertIn("takes bool, integers and floats.", arithmetic)
        self.assertIn("as one operator, `scaled_grad(Tensor grad, Scalar alpha)", arithmetic)
        self.assertIn("Decomposes into other operators: `scaled_other` in `ops/`.\nBackends may", arithmetic)
        self.assertIn("state: sum\nstep: 2 * self\nfinal: sum / n", sums)
        self.assertTrue(sums.startswith("# Sums: of many\n"), sums[:40])
        self.assertIn("takes floats.", sums)
        self.assertIn("- `self`: `grad`", sums)
        self.assertIn("A primitive: defined by its kernel", sums)
        self.assertIn(
            "std::tuple<const Tensor&, const Tensor&> product_out(const Tensor& values, const Tensor& i", sums
        )
        self.assertIn("int main() {\n  run();\n}\n```", sums)
        self.assertIn("`indices` is int64.", sums)
        self.assertIn("| `index` | Tensor |  | index |", sums)
        self.assertIn("**Gradient:** none.", sums)
        self.assertIn('- `self=bool(3,), index=None`: "no index"', sums)
        index = files["docs/ops/index.md"]
        self.assertIn("3 operators with 4 overloads", index)
        self.assertIn(r"| [`scaled`](arithmetic.md#scaled) | elementwise, composite | yes | self \| alpha", index)
        self.assertIn("| [`product`](sums.md#product) | **primitive** |  |", index)


if __name__ == "__main__":
    unittest.main()
