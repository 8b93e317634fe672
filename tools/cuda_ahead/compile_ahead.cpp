// mytorch_cuda_ahead FOLDER CAPABILITY...: compiles the most common kernels, so that they need not
// be compiled on their first call: every pointwise program on contiguous operands, and every
// reduction along rows and columns, for float32 and bfloat16.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/cuda/pointwise/text.h"
#include "backends/cuda/programs/compiler.h"
#include "backends/cuda/reduction/text.h"
#include "dispatcher/table/op.h"

namespace mytorch::cuda {
namespace {

Code stored(int32_t type, Code compute) {
  return type == MT_TYPE_BOOL ? kBool : type == MT_TYPE_INDEX ? kInt64 : compute;
}

// Sets the operands to the types that the program gives them.
void set_operands(const Program& program, Code compute, int first, Key& key) {
  for (const auto* arguments : {&program.inputs, &program.outputs}) {
    for (const Program::Argument& argument : *arguments) {
      key.set(first++, operand_key(Kind::kElements, stored(argument.type, compute)));
    }
  }
}

std::string contiguous(const Program& program, Code compute) {
  using namespace pointwise_key;
  Key key;
  key.set(kCompute, compute);
  key.set(kForm, kLine);
  int largest = 1;
  for (const auto* arguments : {&program.inputs, &program.outputs}) {
    for (const Program::Argument& argument : *arguments) {
      largest = std::max(largest, size_of(stored(argument.type, compute)));
    }
  }
  key.set(kRun, static_cast<uint8_t>(16 / largest));
  set_operands(program, compute, kOperands, key);
  return std::string(kPrelude) + pointwise_text(program, key);
}

std::string folded(const Program& program, Code compute, uint8_t form, bool split) {
  using namespace reduce_key;
  Key key;
  key.set(kCompute, compute);
  key.set(kForm, form);
  key.set(kRun, static_cast<uint8_t>(16 / size_of(compute)));
  key.set(kKeptDims, 1);
  key.set(kReducedDims, 1);
  if (split) key.set(kFlags, kSplit);
  set_operands(program, compute, kOperands, key);
  return std::string(kPrelude) + std::string(kFolds) + reduce_text(program, key);
}

std::vector<std::string> texts() {
  std::vector<std::string> all;
  for (const OpEntry* entry : all_ops()) {
    const OpInfo& op = *entry->info;
    if (!op.has_kernel) continue;
    for (int32_t v = 0; v < op.num_programs; ++v) {
      const Program program(*op.programs[v]);
      for (const Code compute : {kFloat32, kBfloat16}) {
        if (!program.takes(compute)) continue;
        if (program.fold.empty()) {
          all.push_back(contiguous(program, compute));
          continue;
        }
        for (const uint8_t form : {reduce_key::kRows, reduce_key::kColumns}) {
          for (const bool split : {false, true}) {
            all.push_back(folded(program, compute, form, split));
          }
        }
      }
    }
  }
  return all;
}

}  // namespace
}  // namespace mytorch::cuda

int main(int argc, char** argv) {
  using namespace mytorch::cuda;
  try {
    const std::vector<std::string> all = texts();
    for (int i = 2; i < argc; ++i) {
      for (const std::string& text : all) compile_ahead(text, std::atoi(argv[i]), argv[1]);
      std::printf("%zu kernels for compute capability %s\n", all.size(), argv[i]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
