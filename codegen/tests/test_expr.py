import math
import unittest

from codegen.expr import Body, Condition, Decision, Leaf, build_pointwise
from codegen.syntax import ExprError
from codegen.program import Program, evaluate
from codegen.reduce import build_reduce
from codegen.schema import parse_schema


def body(schema: str, text: str, **types: str) -> Body:
    s = parse_schema(schema)
    return build_pointwise(s.full_name, {"out": text}, s.args, types)


def ops(program: Program) -> list[str]:
    return [n.op for n in program.nodes]


def only(schema: str, text: str, **types: str) -> Program:
    found = body(schema, text, **types)
    assert len(found.variants) == 1
    return found.variants[0]


def value(text: str, **inputs) -> object:
    """Returns the value of an expression whose inputs are all tensors."""
    args = ", ".join(f"Tensor {name}" for name in inputs) or "Tensor unused"
    s = parse_schema(f"f({args}) -> Tensor")
    program = build_pointwise("f", {"out": text}, s.args, {}, unused_ok=True).variants[0]
    return evaluate(program, inputs)["out"]


class ProgramTest(unittest.TestCase):
    def test_add(self):
        p = only("add(Tensor self, Operand other, *, Scalar alpha=1) -> Tensor", "self + alpha * other")
        self.assertEqual(ops(p), ["input", "input", "scalar", "mul", "add"])
        self.assertEqual([n.name for n in p.inputs], ["self", "other"])
        self.assertEqual(p.scalars[0].field, "SCALAR")
        self.assertEqual(evaluate(p, {"self": 1, "other": 2, "alpha": 3})["out"], 7.0)

    def test_inputs_come_in_schema_order(self):
        p = only("f(Tensor a, Tensor b, Tensor c) -> Tensor", "c - b * a")
        self.assertEqual([n.name for n in p.nodes[:3]], ["a", "b", "c"])

    def test_scalar_fields(self):
        p = only("f(Tensor a, Scalar s, int i, float f) -> Tensor", "a * s * i * f")
        self.assertEqual([n.field for n in p.scalars], ["SCALAR", "INT", "FLOAT"])

    def test_common_subexpressions_are_one_node(self):
        p = only("f(Tensor a, Tensor b) -> Tensor", "exp(a * b) + sin(b * a)")
        self.assertEqual(ops(p).count("mul"), 1)

    def test_operators(self):
        cases = {
            "a + b": 9.5,
            "a - b": 5.5,
            "a * b": 15.0,
            "a / b": 3.75,
            "a ** 2": 56.25,
            "-a": -7.5,
            "a // b": 3.0,
            "a % b": 1.5,
            "a < b": False,
            "a >= b": True,
            "a == 7.5": True,
            "0 < b < a": True,
            "0 < a < b": False,
            "not (a < b)": True,
            "a > 1 and b > 3": False,
            "a > 1 or b > 3": True,
            "a if a > b else b": 7.5,
            "where(a < b, a, b)": 2.0,
            "min(a, b, 1)": 1.0,
            "max(a, b)": 7.5,
            "+a": 7.5,
            "(a > b) + 1": 2.0,
            "logical(a) & (b > 0)": True,
            "~(a > b)": False,
            "(a > b) ^ (b > 0)": False,
            "number(a > b)": 1.0,
            "square(b)": 4.0,
            "reciprocal(b)": 0.5,
            "clamp(a, 0, 5)": 5.0,
            "e": math.e,
            "pi * b": 2 * math.pi,
        }
        for text, expected in cases.items():
            with self.subTest(text):
                found = value(text, a=7.5, b=2.0)
                self.assertEqual(found, expected)
                self.assertIs(type(found), type(expected))

    def test_integer_arithmetic(self):
        s = parse_schema("f(Tensor a, Tensor b) -> Tensor")
        for text, expected in {
            "a // b": -4,
            "trunc_divide(a, b)": -3,
            "a % b": 1,
            "fmod(a, b)": -1,
            "a & b": 0,
            "a | b": -5,
            "a ^ b": -5,
            "~a": 6,
            "a << b": -28,
            "a >> b": -2,
            "a * b + 1": -13,
            "sign(a)": -1,
        }.items():
            with self.subTest(text):
                p = build_pointwise("f", {"out": text}, s.args, {}, unused_ok=True).variants[0]
                found = evaluate(p, {"a": -7, "b": 2}, integer=True)["out"]
                self.assertEqual(found, expected)
                self.assertIsInstance(found, int)

    def test_types(self):
        s = "f(Tensor c, Tensor x, Tensor i, int k) -> Tensor"
        p = only(s, "(x if c else 0) + number(i == k)", c="BOOL", i="INDEX")
        self.assertEqual({n.name: n.type for n in p.inputs}, {"c": "BOOL", "x": "COMPUTE", "i": "INDEX"})
        self.assertEqual([n.type for n in p.scalars], ["INDEX"])
        p = only("f(Tensor i, Tensor j) -> Tensor", "i if i < 5 else j", i="INDEX", j="INDEX")
        self.assertEqual(p.outputs[0].type, "INDEX")

    def test_bool_root_is_a_bool_output(self):
        self.assertEqual(only("f(Tensor a) -> Tensor", "isnan(a)").outputs[0].type, "BOOL")

    def test_several_outputs_share_nodes(self):
        s = parse_schema("f(Tensor a) -> (Tensor x, Tensor y)")
        p = build_pointwise("f", {"x": "exp(a) + 1", "y": "exp(a) - 1"}, s.args, {}).variants[0]
        self.assertEqual(ops(p).count("exp"), 1)
        self.assertEqual([o.name for o in p.outputs], ["x", "y"])

    def test_different_programs_have_different_hashes(self):
        p = only("f(Tensor a) -> Tensor", "a * inf if a > 0 else -0.5")
        self.assertNotEqual(p.hash, only("f(Tensor a) -> Tensor", "a * inf if a > 0 else 0.5").hash)
        zero, negative = (only("f(Tensor a) -> Tensor", f"maximum(a, {z})").hash for z in ("0.0", "-0.0"))
        self.assertNotEqual(zero, negative)


class SimplifyTest(unittest.TestCase):
    def simplified(self, text: str) -> list[str]:
        return ops(only("f(Tensor x) -> Tensor", text))[1:]

    def test_folds(self):
        self.assertEqual(self.simplified("x * sqrt(2 / pi)"), ["const", "mul"])
        self.assertEqual(self.simplified("x * 1"), [])
        self.assertEqual(self.simplified("x - 0"), [])
        self.assertEqual(self.simplified("x / 1"), [])
        self.assertEqual(self.simplified("-(-x)"), [])
        self.assertEqual(self.simplified("x * -1"), ["neg"])
        self.assertEqual(self.simplified("x ** 2"), ["mul"])
        self.assertEqual(self.simplified("x ** 3"), ["mul", "mul"])
        self.assertEqual(self.simplified("x if x > 0 else x"), [])
        self.assertEqual(self.simplified("logical(number(x > 0))"), ["const", "gt"])
        self.assertEqual(self.simplified("not (x == 3)"), ["const", "ne"])

    def test_what_nan_inf_and_signed_zero_forbid(self):
        self.assertEqual(self.simplified("x * 0"), ["const", "mul"])
        self.assertEqual(self.simplified("x - x"), ["sub"])
        self.assertEqual(self.simplified("x / x"), ["div"])
        self.assertEqual(self.simplified("x + 0"), ["const", "add"])  # -0 + 0 is 0
        self.assertEqual(self.simplified("0 - x"), ["const", "sub"])
        self.assertEqual(self.simplified("not (x < 1)"), ["const", "lt", "logical_not"])
        self.assertEqual(self.simplified("x ** 0.5"), ["const", "pow"])  # pow(-inf, 0.5) is inf
        self.assertTrue(math.isnan(value("x * 0", x=math.inf)))
        self.assertEqual(value("x ** 0 + 0 * y", x=math.nan, y=1.0), 1.0)


class EvaluateTest(unittest.TestCase):
    """Hard inputs, with ATen's results."""

    def check(self, text: str, expected: float, **inputs: float):
        with self.subTest(text, **inputs):
            found = value(text, **inputs)
            if expected != expected:
                self.assertTrue(math.isnan(found), found)
            else:
                self.assertEqual((found, math.copysign(1, found)), (expected, math.copysign(1, expected)))

    def test_hard_inputs(self):
        inf, nan = math.inf, math.nan
        self.check("a / b", inf, a=1.0, b=0.0)
        self.check("a / b", -inf, a=1.0, b=-0.0)
        self.check("a / b", nan, a=0.0, b=0.0)
        self.check("a // b", -inf, a=-1.0, b=0.0)
        self.check("a // b", -1.0, a=-0.5, b=2.0)
        self.check("a % b", 1.5, a=-0.5, b=2.0)
        self.check("fmod(a, b)", -0.5, a=-0.5, b=2.0)
        self.check("a % b", nan, a=1.0, b=0.0)
        self.check("exp(a)", inf, a=1000.0)
        self.check("expm1(a)", -1.0, a=-inf)
        self.check("log(a)", -inf, a=0.0)
        self.check("log(a)", nan, a=-1.0)
        self.check("log1p(a)", -inf, a=-1.0)
        self.check("sqrt(a)", nan, a=-1.0)
        self.check("rsqrt(a)", inf, a=0.0)
        self.check("rsqrt(a)", 0.0, a=inf)
        self.check("atanh(a)", -inf, a=-1.0)
        self.check("sinh(a)", -inf, a=-1000.0)
        self.check("cosh(a)", inf, a=-1000.0)
        self.check("a ** b", -inf, a=-0.0, b=-1.0)
        self.check("a ** b", inf, a=-0.0, b=-2.0)
        self.check("a ** b", nan, a=-8.0, b=1 / 3)
        self.check("a ** b", 1.0, a=nan, b=0.0)
        self.check("a ** b", -inf, a=-1e200, b=3.0)
        self.check("maximum(a, b)", nan, a=1.0, b=nan)
        self.check("minimum(a, b)", nan, a=nan, b=1.0)
        self.check("clamp(a, 0, 1)", nan, a=nan)
        self.check("clamp(a, 2, 1)", 1.0, a=5.0)  # the upper bound wins
        self.check("relu(a)", nan, a=nan)
        self.check("relu(a)", 0.0, a=-0.0)
        self.check("sign(a)", 0.0, a=nan)
        self.check("round(a)", 2.0, a=2.5)
        self.check("round(a)", -0.0, a=-0.5)
        self.check("floor(a)", -1.0, a=-0.5)
        self.check("ceil(a)", -0.0, a=-0.5)
        self.check("trunc(a)", -0.0, a=-0.5)
        self.check("floor(a)", inf, a=inf)
        self.check("sin(a)", nan, a=inf)
        self.check("sigmoid(a)", 0.0, a=-inf)
        self.check("sigmoid(a)", 1.0, a=1000.0)
        self.check("softplus(a)", 1000.0, a=1000.0)
        self.check("log_sigmoid(a)", -inf, a=-inf)
        self.check("xlogy(a, b)", 0.0, a=0.0, b=0.0)
        self.check("xlogy(a, b)", nan, a=0.0, b=nan)
        self.check("logaddexp(a, b)", -inf, a=-inf, b=-inf)
        self.check("logaddexp(a, b)", inf, a=inf, b=inf)
        self.check("hypot(a, b)", 5e300, a=3e300, b=-4e300)
        self.check("hypot(a, b)", 0.0, a=0.0, b=0.0)
        self.check("hypot(a, b)", inf, a=-inf, b=inf)
        self.check("lerp(a, b, 1)", 3.0, a=1e30, b=3.0)
        self.check("lerp(a, b, 0.5)", 0.0, a=-1e308, b=1e308)
        self.check("lerp(a, b, 0.75)", inf, a=1.0, b=inf)
        self.check("lerp(a, b, 1)", nan, a=nan, b=1.0)
        self.check("ldexp(a, b)", 1.5 * 2.0**100, a=1.5 * 2.0**-1000, b=1100.0)
        self.check("ldexp(a, b)", 0.0, a=0.0, b=5000.0)
        self.check("ldexp(a, b)", -inf, a=-inf, b=-5000.0)
        self.check("ldexp(a, b)", inf, a=1.0, b=inf)
        self.check("ldexp(a, b)", nan, a=0.0, b=inf)
        self.check("ldexp(a, b)", nan, a=0.0, b=nan)
        self.check("number(isfinite(a)) + 2 * number(isinf(a))", 0.0, a=nan)
        self.check("number(isfinite(a)) + 2 * number(isinf(a))", 2.0, a=-inf)


class VariantTest(unittest.TestCase):
    CLAMP = (
        "clamp(self, min, max) if min is not None and max is not None else "
        "clamp_min(self, min) if min is not None else "
        "clamp_max(self, max) if max is not None else error('give min or max')"
    )

    def clamp(self) -> Body:
        return body("clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", self.CLAMP)

    def test_optional_arguments(self):
        b = self.clamp()
        self.assertEqual(len(b.variants), 3)
        self.assertEqual([p.variant for p in b.variants], [0, 1, 2])
        for low, high, expected in ((0, 1, 1.0), (0, None, 5.0), (None, 1, 1.0)):
            values = {"self": 5.0, "min": low, "max": high}
            p = b.select(values)
            self.assertEqual({n.name for n in p.scalars}, {k for k in ("min", "max") if values[k] is not None})
            self.assertEqual(evaluate(p, values)["out"], expected)
        with self.assertRaisesRegex(ExprError, "give min or max"):
            b.select({"min": None, "max": None})

    def test_selector_shape(self):
        b = body("f(Tensor x, str mode='a') -> Tensor", "exp(x) if mode == 'a' else x if mode != 'b' else -x")
        self.assertEqual(
            b.selector,
            Decision(
                Condition("str_eq", "mode", "", "a"),
                Leaf(0),
                Decision(Condition("str_eq", "mode", "", "b"), Leaf(1), Leaf(2)),
            ),
        )

    def test_flags_and_numbers(self):
        b = body(
            "f(Tensor x, Scalar p, bool neg=False) -> Tensor",
            "(-x if neg else x) * (x if p == 2 else 1 if p < 0 else p)",
        )
        self.assertEqual({c.kind for c in b.conditions}, {"flag", "num_cmp"})
        self.assertEqual(len(b.variants), 6)
        for p, neg, expected in ((2, True, -9.0), (-1, False, 3.0), (4, True, -12.0)):
            values = {"x": 3.0, "p": p, "neg": neg}
            self.assertEqual(evaluate(b.select(values), values)["out"], expected)

    def test_nan_does_not_satisfy_a_negated_comparison(self):
        b = body("f(Tensor x, float p) -> Tensor", "x if p > 2 else -x")
        values = {"x": 3.0, "p": math.nan}
        self.assertEqual(evaluate(b.select(values), values)["out"], -3.0)
        self.assertEqual(b.conditions, (Condition("num_cmp", "p", ">", 2.0),))
        flipped = body("f(Tensor x, float p) -> Tensor", "x if 2 < p else -x")
        self.assertEqual(flipped.conditions, b.conditions)

    def test_implied_conditions_are_not_asked(self):
        b = body("f(Tensor x, Scalar p) -> Tensor", "x if p == 2 else (-x if p == 3 else exp(x))")
        self.assertEqual(len(b.variants), 3)
        b = body("f(Tensor x, Scalar p) -> Tensor", "(x if p == 2 else -x) * (exp(x) if p < 3 else sin(x))")
        self.assertEqual(len(b.variants), 3)  # p == 2 implies p < 3

    def test_equal_variants_are_one(self):
        b = body("f(Tensor x, bool a, bool b) -> Tensor", "x if a else -x if b else x")
        self.assertEqual(len(b.variants), 2)
        b = body("f(Tensor x, bool a) -> Tensor", "x if a else x * 1")
        self.assertEqual((len(b.variants), b.selector), (1, Leaf(0)))

    def test_static_conditions_as_values(self):
        b = body("f(Tensor x, bool strict) -> Tensor", "x > 0 or (x == 0 and not strict)")
        self.assertEqual(sorted(ops(p).count("eq") for p in b.variants), [0, 1])

    def test_short_circuit_protects_none(self):
        b = body("f(Tensor x, Scalar? p=None) -> Tensor", "x if p is None or p == 1 else x * p")
        self.assertEqual(evaluate(b.select({"p": None}), {"x": 2.0})["out"], 2.0)
        self.assertEqual(evaluate(b.select({"p": 3}), {"x": 2.0, "p": 3})["out"], 6.0)

    def test_optional_tensor(self):
        b = body("f(Tensor x, Tensor? w=None) -> Tensor", "x if w is None else x * w")
        self.assertEqual([len(p.inputs) for p in b.variants], [1, 2])


class RefusalTest(unittest.TestCase):
    def refused(self, schema: str, text: str, message: str, **types: str):
        with self.subTest(text):
            with self.assertRaises(ExprError) as caught:
                body(f"f({schema}) -> Tensor", text, **types)
            self.assertIn(message, str(caught.exception))

    def test_refusals(self):
        x = "Tensor x"
        self.refused(x, "x +", "not an expression")
        self.refused(x, "x + y", "column 5, at `y`: unknown name")
        self.refused(x, "frob(x)", "column 1, at `frob(x)`: unknown function")
        self.refused(x, "exp(x, x)", "exp takes 1 operands, not 2")
        self.refused(x, "clamp(x, 1)", "clamp takes 3 operands")
        self.refused(x, "max(x)", "two or more")
        self.refused(x, "exp(x=x)", "positional")
        self.refused(x, "x.exp()", "by its name")
        self.refused(x, "x[0]", "not part of the body language")
        self.refused(x, "'a'", "not part of the body language")
        self.refused(x, "x @ x", "not part of the body language")
        self.refused(x, "x in x", "not part of the language")
        self.refused(x, "x if x else 0", "the condition is not bool")
        self.refused(x, "x and x > 0", "take bools")
        self.refused(x, "not x", "take bools")
        self.refused(x, "x & (x > 0)", "of a bool and a number")
        self.refused(x, "1.5 & 1", "not whole")
        self.refused(x + ", Tensor y", "x", "does not use `y`")
        self.refused(x + ", Scalar? p", "x * p", "`p` may be None here")
        self.refused(x + ", Scalar? p", "x if p is not None else x * p", "used although it is None")
        self.refused(x + ", Scalar? p", "x if p == 2 else x * x", "`p` may be None here")
        self.refused(x + ", Tensor? w", "x * w", "`w` may be None here")
        self.refused(x + ", str m", "x if m < 'a' else -x", "is a string")
        self.refused(x + ", str m", "x if m == 1 else -x", "is a string")
        self.refused(x + ", str m", "x * m", "which is no number")
        self.refused(x + ", Scalar p", "x if p == 'a' else -x", "is not a string")
        self.refused(x + ", Scalar p", "x if (p + 1) is None else -x", "compares an argument with None")
        self.refused(x, "x if x > 0 else error('no')", "under a condition on tensor elements")
        self.refused(x + ", bool b", "error('a') if b else error('c')", "every variant is an error")
        self.refused(x + ", bool b", "x if b else x > 0", "different types")
        self.refused(x + ", Tensor i", "x * i", "an index is not a number", i="INDEX")
        self.refused(x + ", Tensor i", "x if i == x else 0", "an index meets", i="INDEX")
        self.refused(x + ", Tensor i", "x if i and x > 0 else 0", "take bools", i="INDEX")
        flags = ", ".join(f"bool b{i}" for i in range(4))
        self.refused(
            f"{x}, {flags}",
            " + ".join(f"({i + 1} * x if b{i} else {i + 7}**x)" for i in range(4)),
            "more than 8 variants",
        )


class ReduceTest(unittest.TestCase):
    SELF = "(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor"

    def reduce(self, schema: str, **record) -> Body:
        s = parse_schema(schema)
        return build_reduce(s.full_name, record, s.args, {}, list(s.output_fields))

    def run_one(self, items: list, schema: str = "f" + SELF, scalars: dict | None = None, **record):
        b = self.reduce(schema, **record)
        p = b.select(scalars or {})
        return evaluate(p, {"self": items, **(scalars or {})})["out"]

    def test_states(self):
        items = [3.0, -1.0, 4.0, 4.0]
        for state, expected in dict(
            sum=10.0, prod=-48.0, max=4.0, min=-1.0, argmax=2, argmin=1, all=True, any=True
        ).items():
            with self.subTest(state):
                self.assertEqual(self.run_one(items, state=state), expected)
        self.assertIs(self.run_one([0.0, math.nan], state="all"), False)
        self.assertIs(self.run_one([0.0, math.nan], state="any"), True)

    def test_nan_wins_and_ties_take_the_first(self):
        self.assertEqual(self.run_one([1.0, math.nan, 5.0, math.nan], state="argmax"), 1)
        self.assertEqual(self.run_one([1.0, 0.0, 0.0], state="argmin"), 1)
        self.assertTrue(math.isnan(self.run_one([math.nan, 1.0], state="min")))

    def test_welford(self):
        schema = "var(Tensor self, int[]? dim=None, *, Scalar correction=1) -> Tensor"
        found = self.run_one(
            [1.0, 2.0, 6.0], schema, {"correction": 1}, state="welford", final="m2 / max(0, n - correction)"
        )
        self.assertEqual(found, 7.0)
        nan = self.run_one([1.0], schema, {"correction": 1}, state="welford", final="m2 / max(0, n - correction)")
        self.assertTrue(math.isnan(nan))

    def test_logsumexp(self):
        final = "max + log(sum)"
        found = self.run_one([1000.0, 1000.0], state="logsumexp", final=final)
        self.assertAlmostEqual(found, 1000 + math.log(2))
        self.assertEqual(self.run_one([-math.inf, -math.inf], state="logsumexp", final=final), -math.inf)

    def test_nothing_to_reduce(self):
        self.assertEqual(self.run_one([], state="sum"), 0.0)
        self.assertEqual(self.run_one([], state="prod"), 1.0)
        self.assertIs(self.run_one([], state="all"), True)
        self.assertEqual(self.run_one([], state="logsumexp", final="max + log(sum)"), -math.inf)
        self.assertTrue(math.isnan(self.run_one([], state="sum", final="sum / n")))

    def test_program_shape(self):
        p = self.reduce("mean" + self.SELF, state="sum", final="sum / n").variants[0]
        self.assertEqual((p.fold, p.dim, p.dim_kind, p.keepdim), ("sum", "dim", "LIST", "keepdim"))
        self.assertEqual(p.nodes[p.step].op, "input")
        self.assertEqual(evaluate(p, {"self": [1, 2, 6]})["out"], 3.0)
        p = self.reduce("max(Tensor self) -> Tensor", state="max").variants[0]
        self.assertEqual((p.dim, p.dim_kind, p.keepdim), ("", "ALL", ""))
        p = self.reduce("f(Tensor self, int dim) -> Tensor", state="sum").variants[0]
        self.assertEqual(p.dim_kind, "INT")
        p = self.reduce("f(Tensor self, int? dim=None) -> Tensor", state="argmax").variants[0]
        self.assertEqual((p.dim_kind, p.outputs[0].type), ("OPTIONAL_INT", "INDEX"))

    def test_several_outputs(self):
        b = self.reduce(
            "max.dim(Tensor self, int dim) -> (Tensor values, Tensor indices)",
            state="argmax",
            final={"values": "value", "indices": "index"},
        )
        p = b.variants[0]
        self.assertEqual([(o.name, o.type) for o in p.outputs], [("values", "COMPUTE"), ("indices", "INDEX")])
        self.assertEqual([p.nodes[o.node].component for o in p.outputs], [1, 0])
        self.assertEqual(evaluate(p, {"self": [1.0, 9.0]}), {"values": 9.0, "indices": 1})

    def test_chosen_state(self):
        b = self.reduce(
            "norm(Tensor self, Scalar p=2) -> Tensor",
            state="max if p == inf else sum",
            step="abs(self) if p == inf else self * self if p == 2 else abs(self) ** p",
            final="max if p == inf else sqrt(sum) if p == 2 else sum ** (1 / p)",
        )
        self.assertEqual([p.fold for p in b.variants], ["max", "sum", "sum"])
        for p, expected in ((math.inf, 4.0), (2, 5.0), (1, 7.0)):
            self.assertEqual(evaluate(b.select({"p": p}), {"self": [3.0, -4.0], "p": p})["out"], expected)

    def test_bool_steps_count(self):
        self.assertEqual(self.run_one([0.0, 2.0, 3.0], state="sum", step="self != 0"), 2.0)

    def refused(self, message: str, schema: str = "f" + SELF, **record):
        with self.subTest(message):
            with self.assertRaises(ExprError) as caught:
                self.reduce(schema, **record)
            self.assertIn(message, str(caught.exception))

    def test_refusals(self):
        self.refused("unknown state", state="median")
        self.refused("needs a `final`", state="welford")
        self.refused("needs a `final`", state="logsumexp")
        self.refused("unknown name", state="sum", final="m2")
        self.refused("`final` reads `self`", state="sum", final="sum * self")
        self.refused("may be left out only", "f(Tensor a, Tensor b) -> Tensor", state="sum")
        self.refused("`dim` is str", "f(Tensor self, str dim) -> Tensor", state="sum")
        self.refused("`keepdim` is not bool", "f(Tensor self, int keepdim) -> Tensor", state="sum")
        self.refused("does not use `p`", "f(Tensor self, Scalar p) -> Tensor", state="sum")
        self.refused("both an argument and a part", "f(Tensor self, int n) -> Tensor", state="sum", final="sum * n")
        self.refused("non-tensor arguments only", state="max if self > 0 else min")
        self.refused(
            "`final` gives out; the op returns a, b",
            "f(Tensor self) -> (Tensor a, Tensor b)",
            state="argmax",
            final={"out": "index"},
        )
        self.refused("needs a `final` for each", "f(Tensor self) -> (Tensor a, Tensor b)", state="argmax")


if __name__ == "__main__":
    unittest.main()
