import json
import tempfile
import unittest
from pathlib import Path

from codegen.generate import ROOT, emitter
from codegen.cost import FUNCTIONS, cost_tree
from codegen.formula import parse_formula
from codegen.syntax import ExprError
from codegen.records import load

ROOT = Path(__file__).resolve().parents[2]


class CostTest(unittest.TestCase):
    def tree(self, text: str):
        names = {"x", "weight", "bias", "groups", "stride"}
        return cost_tree(parse_formula(text, names, {"x", "weight", "bias"}, FUNCTIONS).tree)

    def test_forms(self):
        for text, tree in [
            ("2 * numel(x)", ["*", 2, ["numel", "x"]]),
            ("x.shape[1] // groups", ["//", ["size", "x", 1], ["arg", "groups"]]),
            ("nbytes(x) + x.ndim", ["+", ["nbytes", "x"], ["ndim", "x"]]),
            ("-stride[0]", ["-", 0, ["item", "stride", 0]]),
            ("1 if bias is None else 2", ["if", ["absent", "bias"], 1, 2]),
            (
                "1 if bias is not None and not groups else 0.5",
                ["if", ["and", ["not", ["absent", "bias"]], ["not", ["arg", "groups"]]], 1, 0.5],
            ),
            ("x.shape[x.ndim - 2]", ["size", "x", ["-", ["ndim", "x"], 2]]),
        ]:
            with self.subTest(text=text):
                self.assertEqual(self.tree(text), tree)

    def test_refuses(self):
        for text in ["log(groups)", "groups ** 2", "x.strides[0]", "[1, 2]", "'a'"]:
            with self.subTest(text=text), self.assertRaises(ExprError):
                self.tree(text)


class SuitesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ops = load(str(ROOT / "ops.yaml"))

    def emit(self, text: str) -> list:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            return json.loads(emitter(ROOT / "bench" / "emit.py").suites(self.ops, Path(file.name)))

    def test_suites_of_the_project(self):
        cases = json.loads(emitter(ROOT / "bench" / "emit.py").suites(self.ops))
        self.assertEqual(
            {c["suite"] for c in cases},
            set(
                "overhead pointwise complex special reduce matmul conv norm attention recurrent fused index optim "
                "linalg distance fourier gpu".split()
            ),
        )

    def test_a_case(self):
        self.assertEqual(
            self.emit("a:\n- {name: b, op: exp, args: {self: {shape: [3]}}}"),
            [{"suite": "a", "name": "b", "op": "exp", "args": {"self": {"shape": [3]}}}],
        )

    def test_like_completes_tensors_and_cases(self):
        first, second, third = self.emit(
            "a:\n"
            "- {name: x, op: add.Tensor, form: out, args: {self: {like: other, dtype: int8}, other: {shape: [3], low: 1}}}\n"
            "- {name: y, like: x, args: {other: {shape: [5]}, alpha: 2}}\n"
            "- {name: z, like: y, form: function, dtype: int32}\n"
        )
        self.assertEqual(first["args"]["self"], {"shape": [3], "low": 1, "dtype": "int8"})
        self.assertEqual(
            second,
            {"suite": "a", "name": "y", "op": "add.Tensor", "form": "out"}
            | {"args": {"self": {"shape": [5], "dtype": "int8"}, "other": {"shape": [5]}, "alpha": 2}},
        )
        self.assertEqual(third, second | {"name": "z", "form": "function", "dtype": "int32"})

    def test_refuses(self):
        for case, says in [
            ("{op: exp}", "no name"),
            ("{name: x}", "either an op or a program"),
            ("{name: x, op: exp, program: y}", "either an op or a program"),
            ("{name: x, op: nothing}", "unknown operator 'nothing'"),
            ("{name: x, op: exp, speed: 1}", "unknown key 'speed'"),
            ("{name: x, op: exp, args: {}}", "needs 'self'"),
            ("{name: x, op: exp, args: {other: 1}}", "no argument 'other'"),
            ("{name: x, op: exp, args: {self: {dtype: float32}}}", "has no shape"),
            ("{name: x, op: exp, args: {self: {shape: [1], size: 2}}}", "unknown key 'size'"),
            ("{name: x, op: exp, args: {self: {shape: [1], layout: odd}}}", "unknown layout"),
            ("{name: x, op: exp, args: {self: {shape: [1], of: y}}}", "view of 'y'"),
            ("{name: x, like: y}", "like 'y', which is not an earlier case"),
            ("{name: x, op: exp, args: {self: {like: y}}}", "self is like 'y'"),
            ("{name: x, op: exp, args: {self: {like: self}}}", "self is like 'self'"),
            ("{name: x, op: exp, form: odd, args: {self: {shape: [1]}}}", "unknown form"),
            ("{name: x, op: relu_grad, form: out, args: {grad: {shape: [1]}, result: {shape: [1]}}}", "no form 'out'"),
            (
                "{name: x, op: exp, args: {self: {shape: [1]}}}\n- {name: x, op: exp, args: {self: {shape: [1]}}}",
                "two cases",
            ),
        ]:
            with self.subTest(case=case), self.assertRaises(SystemExit) as caught:
                self.emit(f"suite:\n- {case}")
            self.assertIn(says, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
