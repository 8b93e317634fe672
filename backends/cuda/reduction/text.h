// The source text of kernels for reductions.
#pragma once

#include <string>

#include "backends/cuda/programs/key.h"
#include "backends/cuda/programs/program.h"

namespace mytorch::cuda {

// The bytes of the key. Operands are inputs, then outputs; an input is kElements, kNumber or
// kAbsent.
namespace reduce_key {
inline constexpr int kDevice = 0, kCompute = 1, kForm = 2, kRun = 3, kKeptDims = 4,
                     kReducedDims = 5, kFlags = 6, kOperands = 8;
// Forms. Rows: threads along x share a reduction, whose elements they read in runs; threads along y
// have different results. Columns: threads along x have different results, in runs; threads along y
// share a reduction.
inline constexpr uint8_t kRows = 0, kColumns = 1;
// Flags. kSplit: blocks along y share each reduction; each stores its state, and the last one
// combines them, always in the same order. kWide*: sizes of 2^31 and more. kStreaming: operands
// that exceed the caches.
inline constexpr uint8_t kSplit = 1, kWideKept = 2, kWideReduced = 4, kStreaming = 8;
}  // namespace reduce_key

inline constexpr int kReduceThreads = 256;  // kThreads of folds.cuh
inline constexpr int kReduceUnroll = 4;     // loads in flight per thread

// Returns the text that follows kPrelude and kFolds. The kernel's parameters are, in order: each
// present input, the scalars, each wanted output, each "count", the number of results (or runs of
// them), the number of reduced elements (or runs of them), the Faults of a program that divides
// integers, the loop over results, with inputs and outputs, and the loop over reduced elements,
// with inputs. Then, for kColumns, the stride of each output between results of a run; for kSplit,
// memory for a state of each result and blockIdx.y, and a counter for each blockIdx.x.
std::string reduce_text(const Program& program, const Key& key);

// Returns the C++ type of a state, of folds.cuh.
std::string state_name(const Program& program, Code compute);
// Returns the text of a component of a state.
std::string component_text(const Program& program, const std::string& state, int32_t component);
// Returns the bytes of a state.
int state_size(const Program& program, Code compute);

}  // namespace mytorch::cuda
