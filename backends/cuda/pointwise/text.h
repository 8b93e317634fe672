// The source text of kernels for pointwise programs.
#pragma once

#include <string>

#include "backends/cuda/programs/key.h"
#include "backends/cuda/programs/program.h"

namespace mytorch::cuda {

// The bytes of the key. Operands are inputs, then outputs, in the program's order.
namespace pointwise_key {
inline constexpr int kDevice = 0, kCompute = 1, kForm = 2, kRun = 3, kDims = 4, kOperands = 8;
inline constexpr int kMaxOperands = Key::kWords * 8 - kOperands;
// Forms: contiguous elements; a strided loop over runs, below 2^31 (kStrided) and above (kWide); a
// loop over square tiles; and a strided loop over elements whose types are run-time parameters
// (kAny).
inline constexpr uint8_t kLine = 0, kStrided = 1, kWide = 2, kTiled = 3, kAny = 4;
}  // namespace pointwise_key

inline constexpr int kPointwiseThreads = 128;
inline constexpr int kTile = 32;     // elements on a tile's side, one for each thread of a warp
inline constexpr int kTileRows = 8;  // warps in a block
// Calls of at most this many elements, other than uniform calls, use kAny: compiling a kernel for
// each combination of types and layouts would take longer than it saves. MYTORCH_CUDA_GENERAL
// overrides it; 0 disables kAny.
extern int64_t general_limit;
inline constexpr int kAnyDims = 6;  // for kAny
inline constexpr int kAnyOperands = 16;

// Returns how many runs of consecutive elements each thread computes.
int runs_of(const Program& program, const Key& key);

// Returns the text that precedes a kernel: kPrelude, and kComplex for a complex compute type.
std::string pointwise_prelude(const Key& key);

// Returns the text that follows. The kernel's parameters are, in order: each present input
// (a pointer or a scalar), the scalars, each wanted output, the number of elements (kLine) or of
// runs, and, except for kLine, the loop over the operands of kinds kElements, kRepeated and
// kTransposed.
std::string pointwise_text(const Program& program, const Key& key);

}  // namespace mytorch::cuda
