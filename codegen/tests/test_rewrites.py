"""Rules of records: what code generation refuses, and where it says so."""

from __future__ import annotations

import unittest
from pathlib import Path

from codegen.records import RecordErrors, load, load_text

OPS = Path(__file__).resolve().parents[2] / "ops.yaml"
RECORDS = """
- op: exp(Tensor self) -> Tensor
  doc: x
  promote: float
  grad: auto
- op: mul.Tensor(Tensor self, Operand other) -> Tensor
  doc: x
  pointwise: self * other
  grad: auto
- op: both(Tensor self, Tensor other, *, Scalar alpha=1) -> (Tensor a, Tensor b)
  doc: x
  pointwise: {a: self, b: other * alpha}
  grad: auto
- op: outer_one(Tensor self) -> Tensor
  doc: x
  composite: exp(self)
  grad: auto
- op: target(Tensor self, int dim=0) -> Tensor
  doc: x
  composite: target
  kernel: optional
  grad: none
  rewrite:
    - """


def errors(rule: str) -> str:
    try:
        load_text(RECORDS + rule.replace("\n", "\n      "))
    except RecordErrors as error:
        return str(error)
    return ""


class Rules(unittest.TestCase):
    def test_a_rule_is_read(self) -> None:
        rule = "name: a\npattern: exp(x * 2)\nto: target(x)\nif: x.ndim == 2\nmode: fast"
        ops = load_text(RECORDS + rule.replace("\n", "\n      "))
        found = next(op for op in ops if op.full_name == "target").rewrites[0]
        self.assertEqual((found.name, found.pattern, found.mode), ("a", "exp(x * 2)", "fast"))
        self.assertEqual(found.condition, "x.ndim == 2")

    def test_mistakes_say_where(self) -> None:
        start = "name: a\npattern: "
        for rule, message in (
            (start + "exp((y := x))\nto: target(x)", "`y :=` names an operator"),
            (start + "exp(x\nto: target(x)", "column 4: not an expression"),
            (start + "exp(xx(x))\nto: target(x)", "pattern, column 5: unknown operator `xx`"),
            (start + "outer_one(x)\nto: target(x)", "a graph has no node of `outer_one`"),
            (start + "exp(x, y)\nto: target(x)", "`exp` takes fewer arguments"),
            (start + "both(x)\nto: target(x)", "`both` needs `other`"),
            (start + "both(x, y, beta=1)\nto: target(x)", "`both` has no argument `beta`"),
            (start + "both(x, y, alpha='a')\nto: target(x)", "`alpha` of `both` is Scalar, not `'a'`"),
            (start + "exp(2)\nto: target(x)", "`self` of `exp` is Tensor, not `2`"),
            (start + "x\nto: target(x)", "pattern, column 1: is no operator"),
            (start + "exp(result)\nto: target(x)", "the name `result` is that of a result"),
            (start + "exp(x)\nto: target(y)", "to, column 8: the pattern does not bind `y`"),
            (start + "exp(x)\nto: target(x, 0.5)", "`dim` of `target` is int, not `0.5`"),
            (start + "exp(x)\nto: target(xx(x))", "unknown operator or function `xx`"),
            (start + "exp(x)\nto: exp(x)", "does not call `target`, under which the rule stands"),
            (start + "exp(x)\nto: c, result = target(x)", "`c` is neither a result nor a name"),
            (start + "exp(x)\nto: x, result = target(x)", "`x` is neither a result nor a name"),
            (start + "exp(x)\nto: result1 = target(x)", "`result1` is neither a result nor a name"),
            (start + "exp(x)\nto: target(x)\nif: x.size == 1", "if, column 1: unknown attribute `.size`"),
            (start + "exp(x)\nto: target(x)\nif: last(x)", "`last` takes 2 arguments"),
            (start + "exp(x)\nto: target(x)\nmode: quick", "`rewrite.mode: quick` is none of exact, default, fast"),
            (start + "exp(x)\nwhen: 1\nto: target(x)", "`rewrite.when` is no text of a rule"),
            ("name: a\npattern: exp(x)", "a rule of `rewrite` has no `to`"),
        ):
            with self.subTest(rule):
                found = errors(rule)
                self.assertIn(message, found)
                self.assertRegex(found, r"^ops.yaml:\d+: \[target\] ")

    def test_names_are_unique(self) -> None:
        one = "name: a\npattern: exp(x)\nto: target(x)"
        twice = RECORDS + one.replace("\n", "\n      ") + "\n    - " + one.replace("\n", "\n      ")
        with self.assertRaisesRegex(RecordErrors, "the rule `a` is already at line"):
            load_text(twice)

    def test_every_rule_of_the_tree_has_a_test(self) -> None:
        text = (Path(__file__).resolve().parents[2] / "tests/graph/rewrite_test.cpp").read_text()
        names = [rule.name for op in load(OPS) for rule in op.rewrites]
        self.assertGreater(len(names), 20)
        for name in names:
            self.assertTrue(f'"{name}"' in text, name)


if __name__ == "__main__":
    unittest.main()
