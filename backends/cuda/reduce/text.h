// The text of kernels for reductions.
#pragma once

#include <string>

#include "backends/cuda/programs/key.h"
#include "backends/cuda/programs/program.h"

namespace mytorch::cuda {

// The bytes of the key. Operands: inputs, then outputs; an input is kElements, kNumber or kAbsent.
namespace reduce_key {
inline constexpr int kDevice = 0, kCompute = 1, kForm = 2, kRun = 3, kKeptDims = 4,
                     kReducedDims = 5, kFlags = 6, kOperands = 8;
// Forms. Rows: the threads of a block's x share what is reduced, runs lie along it, blocks have
// threadIdx.y for several results. Columns: threads along x have results of their own, runs of
// them, and y shares what is reduced.
inline constexpr uint8_t kRows = 0, kColumns = 1;
// What is reduced is shared by blockIdx.y, each of which leaves states, and the last of which joins
// them, always in the same order; sizes from 2^31 on; operands that no cache holds.
inline constexpr uint8_t kSplit = 1, kWideKept = 2, kWideReduced = 4, kStreaming = 8;
}  // namespace reduce_key

inline constexpr int kReduceThreads = 256;  // the prelude's kThreads
inline constexpr int kReduceUnroll = 4;     // loads of a thread in flight

// What follows kPrelude and kFolds. The kernel's parameters, in order: each input that is there,
// the scalars, each output wanted, each "count", how many results (or runs of them), what is
// reduced (or runs of it), the Faults of a program that divides integers; the walk over results, of
// inputs and outputs; the walk over what is reduced, of inputs; kColumns: of each output the step
// between results of a run; kSplit: storage for a state of each result and blockIdx.y, and a
// counter for each blockIdx.x.
std::string reduce_text(const Program& program, const Key& key);

// Bytes of a state.
int state_size(const Program& program, Code compute);

}  // namespace mytorch::cuda
