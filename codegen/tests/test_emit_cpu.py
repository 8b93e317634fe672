import unittest

from codegen.expr import build_pointwise
from codegen.generate import ROOT, emitter
from codegen.schema import parse_schema

cpu_emitter = emitter(ROOT / "backends" / "cpu-openmp" / "emit.py")


def fused(text: str) -> list[str]:
    args = parse_schema("f(Tensor x, Tensor y) -> Tensor").args
    program = build_pointwise("f", {"out": text}, args, {}, unused_ok=True).variants[0]
    return sorted(call.name for call in cpu_emitter.fused(program).values())


class FusedTest(unittest.TestCase):
    def test_found_wherever_it_stands(self):
        self.assertEqual(fused("y * (1 + erf(0.70710678118654752440 * (x - y)))"), ["NodeTwiceNormalCdf"])
        self.assertEqual(fused("softplus(x) + log_sigmoid(y)"), ["NodeLog1pExp"] * 2)
        self.assertEqual(fused("tanh(softplus(x)) * x"), ["NodeTanhSoftplus"])

    def test_functions_and_their_series(self):
        self.assertEqual(fused("ndtr(x) + erfinv(y)"), ["FloatErfinv", "NodeNdtr"])
        self.assertEqual(fused("i1e(x)"), ["Series_i1e_large", "Series_i1e_small"])

    def test_a_function_of_float32_leaves_float64_the_expression(self):
        args = parse_schema("f(Tensor x) -> Tensor").args
        program = build_pointwise("f", {"out": "2 * erfinv(x)"}, args, {}).variants[0]
        code = "\n".join(cpu_emitter.inner_loop_code(cpu_emitter.InnerLoopCode("f", program, "")))
        single, double = code.split("if constexpr (is_f32<D>) {")[1].split("} else {")
        self.assertIn("FloatErfinv(d, v0)", single)
        self.assertIn("NodeLog", double)

    def test_not_where_it_differs(self):
        self.assertEqual(fused("2 + erf(x * 0.70710678118654752440)"), [])
        self.assertEqual(fused("1 + erf(x * 0.7)"), [])
        self.assertEqual(fused("1 + erf(x * y)"), [])

    def test_not_where_a_costly_part_is_needed_besides(self):
        self.assertEqual(fused("erf(x * 0.70710678118654752440) * (1 + erf(x * 0.70710678118654752440))"), [])
        self.assertEqual(
            fused("(x * 0.70710678118654752440) * (1 + erf(x * 0.70710678118654752440))"), ["NodeTwiceNormalCdf"]
        )


if __name__ == "__main__":
    unittest.main()
