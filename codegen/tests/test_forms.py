"""The output for a record: traits and saved values, from which templates build its forms."""

import unittest

from codegen import emit_stubs
from codegen.generate import ROOT, emitter
from codegen.lock import Lock
from codegen.records import load_text

ADD = """\
- op: plus.Tensor(Tensor self, Operand other, *, Scalar alpha=1) -> Tensor
  doc: A sum.
  pointwise: self + alpha * other
  forms: [inplace]
  grad: auto
"""


def emitted(text: str) -> tuple[str, str]:
    ops = load_text(text)
    return (
        "".join(emit_stubs.emit(ops, Lock({})).values()),
        "".join(emitter(ROOT / "autograd" / "emit.py").emit(ops, Lock({})).values()),
    )


class TraitsTest(unittest.TestCase):
    def test_a_pointwise_record_names_its_fields_and_exact_numbers(self):
        text, _ = emitted(ADD)
        self.assertIn(
            "template <> struct Traits<ops::plus_Tensor> : Pointwise {\n"
            "  using Args = mt_args_plus_Tensor;\n"
            "  using Fields = Members<&Args::self, &Args::other, &Args::alpha>;\n"
            "  using Outputs = Members<&Args::out>;\n"
            "  static constexpr uint8_t exact[] = {0x0, 0x0, 0xff};\n"
            "};\n",
            text,
        )

    def test_a_promotion_other_than_to_the_common_type_is_named(self):
        text, _ = emitted(ADD.replace("  forms", "  promote: float\n  forms"))
        self.assertIn("  static constexpr Promote promote = Promote::kFloat;\n", text)

    def test_every_form_is_instantiated_and_enters_the_layers(self):
        text, _ = emitted(ADD)
        for form in ("kFunction", "kInplace", "kOut"):
            self.assertIn(f"template struct Below<ops::plus_Tensor, {form}>;", text)
            self.assertIn(f" Layered<ops::plus_Tensor, {form}>::call(", text)

    def test_a_derived_gradient_decomposes_where_it_is_recorded(self):
        text, autograd = emitted(ADD)
        self.assertIn("template <> struct Traits<ops::plus_grad_Tensor> : Derived {", text)
        self.assertIn("Layered<ops::plus_grad_Tensor, kFunction>::call(kAllWanted, ", text)
        self.assertIn("install_decomposed<ops::plus_grad_Tensor>();", autograd)

    def test_a_record_without_gradient_has_no_node(self):
        text, autograd = emitted(ADD.replace("grad: auto", "grad: none"))
        self.assertIn("return Layered<ops::plus_Tensor, kFunction>::call(", text)
        self.assertNotIn("Node_plus", autograd)


class SavesTest(unittest.TestCase):
    def test_a_saved_argument_names_the_edges_that_read_it(self):
        _, autograd = emitted(ADD.replace("self + alpha * other", "self * alpha * other"))
        self.assertIn("using Edges = List<EdgeTo<0>, EdgeTo<1>>;", autograd)
        self.assertIn("SavedArgument<&Node_plus_Tensor::self_, 0, 0b10>", autograd)
        self.assertIn("SavedArgument<&Node_plus_Tensor::other_, 1, 0b1>", autograd)
        self.assertIn("KeptArgument<&Node_plus_Tensor::alpha_, 2>", autograd)
        self.assertIn("install<Node_plus_Tensor, ops::plus_Tensor>();", autograd)


if __name__ == "__main__":
    unittest.main()
