"""Every pointwise gradient of ops.yaml, derived or handwritten, against central differences."""

import math
import random
import re
import unittest
from pathlib import Path

from codegen.syntax import ExprError
from codegen.model import Op
from codegen.complex import HOLOMORPHIC
from codegen.nodes import ELEMENTARY, NODE_OPS, SUGAR
from codegen.program import evaluate
from codegen.records import load

OPS = Path(__file__).resolve().parents[2] / "ops.yaml"
# Each test point draws all tensor arguments from one of these ranges, so that every op has points in its domain.
RANGES = ((-3.0, 3.0), (0.05, 0.95), (1.1, 4.0))


def draw(op: Op, rng: random.Random) -> dict[str, object]:
    """Returns values for all arguments; absent optionals are None."""
    values: dict[str, object] = {}
    for arg in op.schema.args:
        choices: list = [None] if arg.optional else []
        if arg.is_tensor and op.types[arg.name] == "bool":
            choices += [True, False]
        elif arg.is_tensor:
            choices += [rng.uniform(*rng.choice(RANGES))] * 2
        elif arg.is_number:
            choices.append(rng.choice([1, 2]) if arg.type == "int" else rng.uniform(0.1, 2))
            if arg.has_default and arg.default is not None:
                choices.append(arg.default)
        elif arg.type == "bool":
            choices += [True, False]
        elif arg.type == "str":
            asked = [c for c in op.body.conditions if c.arg == arg.name and c.kind == "str_eq"]
            choices += [c.value for c in asked] + ([arg.default] if arg.has_default else [])
        values[arg.name] = rng.choice(choices)
    return values


class OpsTest(unittest.TestCase):
    def check(self, op: Op, derived: Op, values: dict, rng: random.Random) -> int:
        """Compares the gradients at one point and returns their number."""
        try:
            program = op.body.select(values)
        except ExprError:
            return 0  # a rejected combination
        forward = evaluate(program, values)
        if not all(math.isfinite(v) for v in forward.values()):
            return 0
        names = {r.field: r.name for r in op.results}
        incoming = {
            r.field: "grad" if sum(s.differentiable for s in op.results) == 1 else f"grad_{r.name}"
            for r in op.results
            if r.differentiable
        }
        weights = {grad: rng.uniform(0.5, 2) for grad in incoming.values()}
        inputs = values | {names[f]: v for f, v in forward.items()} | weights
        found = evaluate(derived.body.select(inputs), inputs)

        def loss(name: str, x: float) -> float:
            outputs = evaluate(program, {**values, name: x})
            return sum(outputs[f] * weights[grad] for f, grad in incoming.items())

        compared = [o for o in op.grad.outputs if values[o.arg] is not None]
        for output in compared:
            x, h, name = values[output.arg], 1e-5, output.arg
            near = loss(name, x + h) - loss(name, x - h)
            far = loss(name, x + 2 * h) - loss(name, x - 2 * h)
            expected = (8 * near - far) / (12 * h)
            self.assertTrue(
                math.isclose(found[output.field], expected, rel_tol=1e-5, abs_tol=1e-6),
                f"{op.full_name}: d/d{name} is {found[output.field]}, not {expected}, at {values}",
            )
        return len(compared)

    def test_gradients(self):
        ops = {op.full_name: op for op in load(OPS)}
        for op in ops.values():
            if op.meaning != "pointwise" or op.derived or not op.grad.derived:
                continue
            with self.subTest(op.full_name):
                rng = random.Random(op.full_name)
                compared = sum(self.check(op, ops[op.grad.derived], draw(op, rng), rng) for _ in range(60))
                self.assertGreater(compared, 15, "too few points lie in the domain")


def names_in(path: str, pattern: str, text: str = "") -> set[str]:
    """Returns the first group of every match in a file of the project, or in a part of it."""
    return set(re.findall(pattern, text or (OPS.parent / path).read_text()))


class AgreementTest(unittest.TestCase):
    """The lists in the backends and in the documentation agree with the table of node operations."""

    def test_the_reference_has_every_node_operation(self):
        quoted = r'(?:[A-Z_]+\(|\{)"(\w+)"'
        floats = names_in("backends/reference/node_ops_float.cpp", quoted)
        integers = names_in("backends/reference/node_ops_integer.cpp", quoted)
        bits = {name for name, op in NODE_OPS.items() if op.kind == "bitwise"}
        logic = {name for name, op in NODE_OPS.items() if op.kind in ("logical", "where")}
        self.assertEqual(floats, set(NODE_OPS) - bits - logic)
        # In double.
        converted = {name for name, op in NODE_OPS.items() if op.kind == "math" and op.arity == 1}
        self.assertEqual(integers | converted, set(NODE_OPS))

    def test_cuda_has_every_node_operation(self):
        text = (OPS.parent / "backends/cuda/programs/node_ops.cuh").read_text()
        complex_text = (OPS.parent / "backends/cuda/programs/complex.cuh").read_text()
        self.assertEqual({name for name in NODE_OPS if not re.search(rf"\b{name}\b", text)}, set())
        self.assertEqual({name for name in HOLOMORPHIC if not re.search(rf"\b{name}\b", complex_text)}, set())

    def test_every_node_operation_is_an_operator(self):
        names = {op.schema.name for op in load(OPS)}
        self.assertEqual(sorted(set(NODE_OPS) - names), [])

    def test_the_page_lists_node_operations_and_sugar(self):
        page = (OPS.parent / "docs" / "records.md").read_text()
        nodes = page.split("**Node operations**")[1].split("`")[1]
        self.assertEqual(set(nodes.split()), set(NODE_OPS) - {function.name for function in ELEMENTARY})
        sugar = page.split("**Functions that expand**")[1].split("`")[1]
        self.assertEqual(set(re.sub(r"\(.*?\)", "", sugar).split()), set(SUGAR))


if __name__ == "__main__":
    unittest.main()
