// NVRTC compiles the kernel text of every reduction. Needs no GPU.
#include <gtest/gtest.h>

#include <string>

#include "backends/cuda/programs/compiler.h"
#include "backends/cuda/reduction/text.h"
#include "tests/backends/cuda/programs/joined.h"
#include "tests/backends/cuda/record_programs.h"

namespace mytorch::cuda {
namespace {

using namespace reduce_key;

// The specialization of a kernel.
struct Form {
  const char* name;
  Code compute;
  uint8_t form, flags;
  int run;
};

class ReduceTexts : public ::testing::TestWithParam<Form> {};

TEST_P(ReduceTexts, OfEveryProgramCompile) {
  const auto [name, compute, form, flags, run] = GetParam();
  Joined joined{std::string(kPrelude) + std::string(kFolds)};
  for (const testing::RecordPrograms& op : testing::record_programs()) {
    for (size_t v = 0; v < op.variants.size(); ++v) {
      if (op.variants[v]->fold == nullptr) continue;
      const Program program(*op.variants[v]);
      if (!program.takes(compute)) continue;
      Key key;
      key.set(kCompute, compute);
      key.set(kForm, form);
      key.set(kFlags, flags);
      key.set(kRun, static_cast<uint8_t>(run));
      key.set(kKeptDims, 2);
      key.set(kReducedDims, 1);
      int byte = kOperands;
      for (size_t i = 0; i < program.inputs.size(); ++i) {
        key.set(byte++, operand_key(Kind::kElements, compute));
      }
      for (const Program::Argument& argument : program.outputs) {
        const Code type = argument.type == MT_TYPE_BOOL    ? kBool
                          : argument.type == MT_TYPE_INDEX ? kInt64
                                                           : compute;
        key.set(byte++, operand_key(Kind::kElements, type));
      }
      joined.add(reduce_text(program, key));
    }
  }
  joined.compile();
}

INSTANTIATE_TEST_SUITE_P(
    , ReduceTexts,
    ::testing::Values(Form{"RowsOfFloat32", kFloat32, kRows, 0, 4},
                      Form{"ColumnsOfBfloat16", kBfloat16, kColumns, 0, 8},
                      Form{"SplitColumnsOfInt64", kInt64, kColumns, kSplit, 2},
                      Form{"SplitWideRowsOfBool", kBool, kRows, kSplit | kWideReduced, 8},
                      Form{"WideRowsOfFloat64", kFloat64, kRows, kSplit | kWideKept, 1}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mytorch::cuda
