"""libtorch's spellings of modules, from the headers of nn (nn/emit.py)."""

import unittest

from codegen.generate import ROOT, emitter

emit = emitter(ROOT / "nn" / "emit.py")
HEADER = """
struct ShiftArgs {
  double by = 1;
  Sizes<2> stride = {1, 2};
};
using ShiftOptions = Options<ShiftArgs>;
using MoveArgs = ShiftArgs;
using MoveOptions = Options<MoveArgs, int64_t>;
struct StepArgs {
  double lr = 1e-3;
};
using StepOptions = OptimizerOptionsOf<StepArgs>;
struct NoArgs {};
class Shift final : public Layer<Shift> {
};
class Move : public LayerWith<Move, MoveArgs> {
};
template <int64_t n>
class ShiftNd : public Layer<ShiftNd<n>> {
};
class Config : public Base {
};
using Shove = Move;
"""


class NnEmitTest(unittest.TestCase):
    def test_options_are_the_fields_of_the_aggregates(self):
        options = {"ShiftArgs": ["by", "stride"], "MoveArgs": ["by", "stride"], "StepArgs": ["lr"], "NoArgs": []}
        self.assertEqual(emit.options([HEADER]), options)

    def test_each_list_has_the_options_that_its_builders_have(self):
        names = emit.option_names([HEADER])
        self.assertEqual(names["MYTORCH_OPTION_NAMES"], ["by", "stride"])
        self.assertEqual(names["MYTORCH_OPTIMIZER_OPTION_NAMES"], ["lr"])
        self.assertEqual(names["MYTORCH_LOADER_OPTION_NAMES"], [])

    def test_layers_are_classes_that_programs_make(self):
        self.assertEqual(emit.layers(HEADER), ["Shift", "Move", "Shove"])

    def test_every_module_of_libtorch_has_its_name(self):
        text = emit.emit([], None)["include/mytorch/nn/impl.h"]
        for name in ("Linear", "Conv2d", "BatchNorm2d", "LSTM", "Functional", "CrossEntropyLoss"):
            self.assertIn(f"using {name}Impl = {name};\n", text)


if __name__ == "__main__":
    unittest.main()
