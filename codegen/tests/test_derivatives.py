"""Derivatives against central differences, also at points where a careless formula gives NaN."""

import math
import unittest

from codegen.differentiate import Derived, differentiate
from codegen.expr import Body, build_pointwise
from codegen.nodes import NODE_OPS, SUGAR
from codegen.program import evaluate
from codegen.schema import parse_schema

# Points that are not close to kinks of the functions.
UNARY = [-1.3, -0.9, -0.4, 0.3, 0.7, 1.3, 2.2, 3.7]
BINARY = {"pow": [(0.3, 2.5), (2.0, -1.5), (3.0, 0.5)]}
ANY_PAIR = [(-1.3, 0.7), (0.9, 2.1), (2.2, -1.6), (-0.8, -2.9)]


def make(schema: str, text: str, **types: str) -> Body:
    s = parse_schema(schema)
    return build_pointwise(s.full_name, {"out": text}, s.args, types)


def derive(body: Body, schema: str, **types: str) -> Derived:
    s = parse_schema(schema)
    wanted = [a.name for a in s.tensor_args if a.name not in types]
    return differentiate(body, "grad", wanted, {"out": "grad"}, {"out": "result"}, [a.name for a in s.args])


def gradient(body: Body, derived: Derived, values: dict, grad: float = 1.0) -> dict[str, float]:
    """Returns all gradients at a point, including zeros."""
    forward = body.select(values)
    result = evaluate(forward, values)["out"]
    found = evaluate(derived.programs[forward.variant], {**values, "grad": grad, "result": result})
    return dict.fromkeys(derived.zero, 0.0) | found


def numeric(body: Body, values: dict, name: str) -> float:
    def at(x: float) -> float:
        return evaluate(body.select(values), {**values, name: x})["out"]

    h = 1e-5 * max(1.0, abs(values[name]))
    # Fourth order, so that the error is far below the tolerance even for steep functions.
    x = values[name]
    return (8 * (at(x + h) - at(x - h)) - (at(x + 2 * h) - at(x - 2 * h))) / (12 * h)


class Differences(unittest.TestCase):
    def check(self, schema: str, text: str, points: list[dict], **types: str):
        body = make(schema, text, **types)
        derived = derive(body, schema, **types)
        for point in points:
            found = gradient(body, derived, point, grad=1.7)
            for name, value in found.items():
                expected = 1.7 * numeric(body, point, name)
                with self.subTest(text, name=name, point=point):
                    self.assertTrue(
                        math.isclose(value, expected, rel_tol=2e-7, abs_tol=2e-8), f"{value} is not {expected}"
                    )


class NodeTest(Differences):
    def test_every_node(self):
        for op in NODE_OPS.values():
            if op.kind == "math":
                names = "ab"[: op.arity]
                schema = f"f({', '.join(f'Tensor {n}' for n in names)}) -> Tensor"
                low, high = op.domain
                inside = [(x,) for x in UNARY if low < x < high]
                points = inside if op.arity == 1 else BINARY.get(op.name, ANY_PAIR)
                self.check(schema, f"{op.name}({', '.join(names)})", [dict(zip(names, p)) for p in points])

    def test_where(self):
        self.check(
            "f(Tensor c, Tensor a, Tensor b) -> Tensor",
            "a * b if c else a + b * b",
            [{"c": c, "a": 0.3, "b": 1.2} for c in (True, False)],
            c="BOOL",
        )

    def test_every_other_kind_has_no_derivative(self):
        for op in NODE_OPS.values():
            if op.kind not in ("math", "where"):
                self.assertFalse(any(op.derivatives), op.name)

    def test_sugar(self):
        for name, (parameters, _) in SUGAR.items():
            if name in ("isinf", "isfinite"):
                continue
            names = parameters.split()
            schema = f"f({', '.join(f'Tensor {n}' for n in names)}) -> Tensor"
            points = [(-1.3, 0.7, 0.2), (0.4, 2.1, 0.8), (1.9, 0.6, 1.1)]
            self.check(schema, f"{name}({', '.join(names)})", [dict(zip(names, p)) for p in points])


class BodyTest(Differences):
    X = "f(Tensor self) -> Tensor"

    def xs(self, *values: float) -> list[dict]:
        return [{"self": v} for v in values]

    def test_activations(self):
        points = self.xs(-3.1, -0.6, 0.4, 2.7)
        for text in (
            "0.5 * self * (1 + erf(self / sqrt(2)))",
            "0.5 * self * (1 + tanh(sqrt(2 / pi) * (self + 0.044715 * self ** 3)))",
            "self * sigmoid(self)",
            "log_sigmoid(self)",
            "softplus(self)",
            "relu(self)",
            "self * tanh(softplus(self))",
            "clamp(self / 6 + 0.5, 0, 1)",
            "self / (1 + abs(self))",
            "self if self > 0 else 1.67 * expm1(self)",
            "self - tanh(self)",
            "-exp(-self * self / 2) / sqrt(2 * pi)",
        ):
            self.check(self.X, text, points)

    def test_variants(self):
        schema = "gelu(Tensor self, *, str approximate='none') -> Tensor"
        text = (
            "0.5 * self * (1 + tanh(sqrt(2 / pi) * (self + 0.044715 * self ** 3))) "
            "if approximate == 'tanh' else 0.5 * self * (1 + erf(self / sqrt(2)))"
        )
        self.check(schema, text, [{"self": x, "approximate": a} for x in (-1.1, 0.7) for a in ("tanh", "none")])
        schema = "clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor"
        text = (
            "clamp(self, min, max) if min is not None and max is not None else "
            "clamp_min(self, min) if min is not None else "
            "clamp_max(self, max) if max is not None else self"
        )
        self.check(
            schema,
            text,
            [{"self": x, "min": low, "max": high} for x in (-2.0, 0.5, 3.0) for low in (0, None) for high in (1, None)],
        )

    def test_several_inputs(self):
        points = [{"self": 0.3, "other": 1.4, "value": -0.7}, {"self": 2.1, "other": 0.6, "value": 1.9}]
        args = "f(Tensor self, Tensor other, Tensor value) -> Tensor"
        for text in (
            "self + 0.5 * other * value",
            "self / (other * value)",
            "self ** other * value",
            "exp(self * other) + value / exp(self * other)",
            "lerp(self, other, value)",
            "atan2(self * value, other)",
            "maximum(self, other) * minimum(other, value)",
        ):
            self.check(args, text, points)

    def test_number_arguments(self):
        self.check(
            "f(Tensor self, Scalar beta, Scalar threshold) -> Tensor",
            "self if self * beta > threshold else log1p(exp(self * beta)) / beta",
            [{"self": x, "beta": 2, "threshold": 20} for x in (-5.0, 0.3, 12.0)],
        )

    def test_second_order(self):
        """Differentiates the gradient's own program, which consists of node operations."""
        for text in ("sigmoid(self)", "self * tanh(self)", "sqrt(self)", "log1p(exp(self))", "self ** 3.5"):
            first = derive(make(self.X, text), self.X)
            program = first.programs[0]
            names = [n.name for n in program.inputs]
            again = differentiate(Body(first.programs, None), "g2", names, {"self": "g"}, {}, names)

            def at(x: float) -> dict:
                result = evaluate(make(self.X, text).variants[0], {"self": x})["out"]
                return {"self": x, "result": result, "grad": 1.0, "g": 1.0}

            x, h = 0.8, 1e-5
            slope = evaluate(program, at(x))["self"]
            parts = evaluate(again.programs[0], at(x))
            total = parts.get("self", 0.0) + parts.get("result", 0.0) * slope
            expected = (evaluate(program, at(x + h))["self"] - evaluate(program, at(x - h))["self"]) / (2 * h)
            self.assertTrue(math.isclose(total, expected, rel_tol=1e-6), (text, total, expected))


class HardPointTest(unittest.TestCase):
    """Values that risk 0 * inf, and values for which ATen has conventions."""

    def at(this, schema: str, text: str, types: dict | None = None, /, **values) -> dict[str, float]:
        body = make(schema, text, **(types or {}))
        return gradient(body, derive(body, schema, **(types or {})), values)

    def x(self, text: str, value: float) -> float:
        return self.at("f(Tensor self) -> Tensor", text, self=value)["self"]

    def test_the_arm_not_taken_does_not_leak(self):
        self.assertEqual(self.x("self if self > 20 else log1p(exp(self))", 1000.0), 1.0)
        self.assertEqual(self.x("0 if self <= 0 else sqrt(self)", 0.0), 0.0)
        self.assertEqual(self.x("0 if self <= 0 else self * log(self)", 0.0), 0.0)
        self.assertEqual(self.x("1 if abs(self) < 1e-9 else sin(self) / self", 0.0), 0.0)
        self.assertEqual(self.x("(0 if self <= 0 else sqrt(self)) * 3 + self", -1.0), 1.0)
        # One conditional in the arm of another, and a node used in both arms.
        self.assertEqual(self.x("exp(self) if self > 0 else (1 if self < -5 else sqrt(self + 5))", -6.0), 0.0)
        self.assertEqual(self.x("exp(self) if self > 0 else 2 * exp(self)", -1.0), 2 * math.exp(-1))

    def test_extremes_are_finite(self):
        for text in (
            "sigmoid(self)",
            "tanh(self)",
            "softplus(self)",
            "log_sigmoid(self)",
            "atan(self)",
            "asinh(self)",
            "erf(self)",
            "relu(self)",
            "self / (1 + abs(self))",
        ):
            for value in (-1e4, -100.0, 0.0, 100.0, 1e4):
                self.assertTrue(math.isfinite(self.x(text, value)), (text, value))

    def test_half_at_zero(self):
        self.assertEqual(self.x("softplus(self)", 0.0), 0.5)
        self.assertEqual(self.x("log_sigmoid(self)", 0.0), 0.5)
        self.assertEqual(self.x("abs(self)", 0.0), 0.0)
        self.assertEqual(self.x("relu(self)", 0.0), 0.0)

    def test_pow(self):
        f = "pow(Tensor self, Tensor exponent) -> Tensor"
        self.assertEqual(self.at(f, "self ** exponent", self=0.0, exponent=0.0), {"self": 0.0, "exponent": 0.0})
        self.assertEqual(self.at(f, "self ** exponent", self=0.0, exponent=2.0), {"self": 0.0, "exponent": 0.0})
        self.assertEqual(self.at(f, "self ** exponent", self=0.0, exponent=1.0)["self"], 1.0)
        self.assertEqual(self.at(f, "self ** exponent", self=-2.0, exponent=3.0)["self"], 12.0)
        self.assertEqual(self.at(f, "self ** exponent", self=math.inf, exponent=0.0)["self"], 0.0)

    def test_ties(self):
        f = "f(Tensor self, Tensor other) -> Tensor"
        for op in ("maximum", "minimum"):
            self.assertEqual(self.at(f, f"{op}(self, other)", self=2.0, other=2.0), {"self": 0.5, "other": 0.5})
        self.assertEqual(
            self.at(f, "maximum(self, other)", self=math.nan, other=2.0), {"self": 1.0, "other": 1.0}
        )  # as in ATen: NaN passes the gradient to both
        g = "f(Tensor self, Scalar low, Scalar high) -> Tensor"
        for x, expected in ((0.0, 1.0), (1.0, 1.0), (0.5, 1.0), (-0.1, 0.0), (1.1, 0.0), (math.nan, 0.0)):
            found = self.at(g, "clamp(self, low, high)", self=x, low=0, high=1)
            self.assertEqual(found["self"], expected, x)

    def test_atan2(self):
        f = "f(Tensor self, Tensor other) -> Tensor"
        for y, x, dy, dx in ((0.0, 0.0, 0.0, 0.0), (0.0, 2.0, 0.5, 0.0), (2.0, 0.0, 0.0, -0.5), (0.0, -2.0, -0.5, 0.0)):
            found = self.at(f, "atan2(self, other)", self=y, other=x)
            self.assertEqual((found["self"], found["other"]), (dy, dx))
        found = self.at(f, "atan2(self, other)", self=3e200, other=4e200)  # the squares overflow
        self.assertTrue(math.isclose(found["self"], 4e200 / 25e200 / 1e200, rel_tol=1e-14))

    def test_xlogy(self):
        f = "f(Tensor self, Tensor other) -> Tensor"
        self.assertEqual(self.at(f, "xlogy(self, other)", self=0.0, other=0.0), {"self": 0.0, "other": 0.0})

    def test_bool_inputs_have_none(self):
        found = self.at("f(Tensor c, Tensor a) -> Tensor", "a if c else -a", {"c": "BOOL"}, c=False, a=3.0)
        self.assertEqual(found, {"a": -1.0})


class SaveTest(unittest.TestCase):
    def saved(self, schema: str, text: str, **types: str) -> tuple[str, ...]:
        return derive(make(schema, text, **types), schema, **types).saved

    def test_result_where_it_is_less_or_equal(self):
        x = "f(Tensor self) -> Tensor"
        for text in (
            "exp(self)",
            "tanh(self)",
            "sigmoid(self)",
            "sqrt(self)",
            "rsqrt(self)",
            "expm1(self)",
            "tan(self)",
            "exp2(self)",
        ):
            self.assertEqual(self.saved(x, text), ("result",), text)
        for text in ("sin(self)", "log(self)", "abs(self)", "self * sigmoid(self)", "self * self"):
            self.assertEqual(self.saved(x, text), ("self",), text)
        xy = "f(Tensor self, Operand other, *, Scalar alpha=1) -> Tensor"
        self.assertEqual(self.saved(xy, "self + alpha * other"), ())
        self.assertEqual(self.saved(xy, "self * other * alpha"), ("self", "other"))
        self.assertEqual(self.saved(xy, "alpha * self / other"), ("other", "result"))
        self.assertEqual(self.saved("f(Tensor c, Tensor a, Tensor b) -> Tensor", "a if c else b", c="BOOL"), ("c",))

    def test_zero_everywhere(self):
        x = "f(Tensor self, Tensor other) -> Tensor"
        found = derive(make(x, "floor(self) + other"), x)
        self.assertEqual((found.zero, found.outputs), (("self",), ("other",)))

    def test_shared_between_outputs(self):
        x = "f(Tensor self, Tensor other) -> Tensor"
        program = derive(make(x, "sin(self * other)"), x).programs[0]
        self.assertEqual([n.op for n in program.nodes].count("cos"), 1)

    def test_variants_keep_their_numbers(self):
        schema = "f(Tensor self, bool square) -> Tensor"
        body = make(schema, "self * 2 if square else self + 1")
        derived = derive(body, schema)
        self.assertEqual([p.variant for p in derived.programs], [0, 1])
        self.assertEqual(gradient(body, derived, {"self": 3.0, "square": True}), {"self": 2.0})
        self.assertEqual(gradient(body, derived, {"self": 3.0, "square": False}), {"self": 1.0})
        # Also if two gradients are the same program.
        body = make(schema, "self + 2 if square else self + 1")
        self.assertEqual(len(derive(body, schema).programs), 2)


if __name__ == "__main__":
    unittest.main()
