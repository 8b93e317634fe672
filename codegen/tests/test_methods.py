"""What is a method of torch.Tensor, in Python or in C++, is a method here."""

import unittest
from pathlib import Path

from codegen.generate import ROOT
from codegen.records import load

# The public methods of torch.Tensor and of ATen's Tensor, of PyTorch 2.15.
PYTORCH = frozenset(Path(__file__).with_name("tensor_methods.txt").read_text().split())
# Written by hand in mytorch/tensor.h.
BY_HAND = {"item", "polygamma", "type_as", "where"}
# A tensor never changes its shape.
NOT_IN_PLACE = {"as_strided", "polygamma", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze"}


class MethodsTest(unittest.TestCase):
    def setUp(self):
        self.ops = load(ROOT / "ops.yaml")

    def test_operators_that_are_methods_in_pytorch_are_methods(self):
        methods = BY_HAND | {n for op in self.ops if "method" in op.forms for n in (op.schema.name, *op.aliases)}
        functions = {n for op in self.ops if op.schema.args for n in (op.schema.name, *op.aliases)}
        self.assertEqual(functions & PYTORCH - methods, set())

    def test_in_place_methods_of_pytorch_are_forms_of_operators(self):
        functions = {op.schema.name for op in self.ops}
        inplace = {op.schema.name for op in self.ops if "inplace" in op.forms}
        inplace |= {name for name in functions if name + "_" in functions}
        self.assertEqual({name for name in functions if name + "_" in PYTORCH} - inplace, NOT_IN_PLACE)


if __name__ == "__main__":
    unittest.main()
