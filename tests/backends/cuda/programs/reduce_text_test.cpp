// Kernels for reductions: that NVRTC takes the text of every one. Needs no GPU.
#include <gtest/gtest.h>

#include <string>

#include "backends/cuda/programs/compiler.h"
#include "backends/cuda/reduce/text.h"
#include "tests/backends/cuda/programs/joined.h"

namespace mytorch::cuda {
namespace {

using namespace reduce_key;

void compile_all(Code compute, uint8_t form, uint8_t flags, int run) {
  Joined joined{std::string(kPrelude) + std::string(kFolds)};
  for (const ProgramOp& op : all_programs()) {
    for (int32_t v = 0; v < op.num_variants; ++v) {
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

TEST(ReduceText, RowsOfFloat32) { compile_all(kFloat32, kRows, 0, 4); }
TEST(ReduceText, ColumnsOfBfloat16) { compile_all(kBfloat16, kColumns, 0, 8); }
TEST(ReduceText, SplitColumnsOfInt64) { compile_all(kInt64, kColumns, kSplit, 2); }
TEST(ReduceText, SplitRowsOfBool) { compile_all(kBool, kRows, kSplit | kWideReduced, 8); }
TEST(ReduceText, RowsOfFloat64) { compile_all(kFloat64, kRows, kSplit | kWideKept, 1); }

}  // namespace
}  // namespace mytorch::cuda
