"""Bodies of complex operands: which are accepted, and the programs of their gradients."""

import cmath
import unittest

from codegen.nodes import NODE_OPS
from codegen.records import RecordErrors, load_text

RECORD = """
- op: {op}
  doc: A function.
  promote: float
  complex: true
  pointwise: {body}
  grad: auto
"""
ONE = "f(Tensor self) -> Tensor"
TWO = "f(Tensor self, Tensor other) -> Tensor"


def load(op, body):
    return load_text(RECORD.format(op=op, body=body))


def run(program, values):
    """Computes a program on complex numbers."""
    functions = {"exp": cmath.exp, "sin": cmath.sin, "cos": cmath.cos}
    found = []
    for node in program.nodes:
        if node.op == "input":
            found.append(complex(values[node.name]))
        elif node.op == "const":
            found.append(node.value)
        else:
            function = functions.get(node.op, NODE_OPS[node.op].evaluate)
            found.append(function(*(found[a] for a in node.args)))
    return {o.name: found[o.node] for o in program.outputs}


class ComplexTest(unittest.TestCase):
    def test_gradients_are_grad_times_the_conjugate_of_the_slope(self):
        for body, slopes in (
            ("self * other", lambda a, b: (b, a)),
            ("self - other * other", lambda a, b: (1, -2 * b)),
            ("sin(self) * exp(other)", lambda a, b: (cmath.cos(a) * cmath.exp(b), cmath.sin(a) * cmath.exp(b))),
        ):
            op, derived = load(TWO, body)
            self.assertTrue(op.takes_complex and derived.takes_complex)
            values = {"grad": 0.5 - 2j, "self": 0.3 + 0.7j, "other": -0.4 + 0.2j}
            values["result"] = run(op.body.variants[0], values)["out"]
            found = run(derived.complex_variants[0], values)
            for name, slope in zip(("grad_self", "grad_other"), slopes(values["self"], values["other"])):
                expected = values["grad"] * complex(slope).conjugate()
                self.assertAlmostEqual(found[name], expected, 12, f"{name} of {body}")

    def test_the_program_of_real_operands_does_not_conjugate(self):
        _, derived = load(ONE, "exp(self)")
        self.assertFalse(any(n.op == "conj_physical" for n in derived.body.variants[0].nodes))
        self.assertTrue(any(n.op == "conj_physical" for n in derived.complex_variants[0].nodes))

    def test_a_gradient_that_only_passes_on_is_not_conjugated(self):
        _, derived = load(TWO, "self + 2 * other")
        program = derived.complex_variants[0]
        self.assertEqual(program.nodes[program.outputs[0].node].op, "input")

    def test_conditions_do_not_hide_a_holomorphic_value(self):
        op, derived = load(ONE, "self * self if abs(self) < 1 else self")
        self.assertTrue(op.takes_complex and derived.complex_variants)

    def test_a_magnitude_among_the_values_has_no_derived_gradient(self):
        op, derived = load(ONE, "self * abs(self)")
        self.assertTrue(op.takes_complex)
        self.assertFalse(derived.takes_complex or derived.complex_variants)

    def test_operations_without_a_meaning_are_refused(self):
        for body in ("floor(self)", "maximum(self, 0)", "erf(self) + self"):
            with self.assertRaisesRegex(RecordErrors, "of complex numbers has no meaning"):
                load(ONE, body)


if __name__ == "__main__":
    unittest.main()
