// The text of kernels for pointwise programs.
#pragma once

#include <string>

#include "backends/cuda/programs/key.h"
#include "backends/cuda/programs/program.h"

namespace mytorch::cuda {

// The bytes of the key. Operands: inputs, then outputs, in the program's order.
namespace pointwise_key {
inline constexpr int kDevice = 0, kCompute = 1, kForm = 2, kRun = 3, kDims = 4, kOperands = 8;
inline constexpr int kMaxOperands = Key::kWords * 8 - kOperands;
// Forms: elements in a line, a walk over runs (below and from 2^31 on), a walk over squares, and a
// walk over elements of any types, which are parameters too.
inline constexpr uint8_t kLine = 0, kStrided = 1, kWide = 2, kTiled = 3, kAny = 4;
}  // namespace pointwise_key

inline constexpr int kPointwiseThreads = 128;
inline constexpr int kTile = 32;     // elements on a square's side: as many as threads of a warp
inline constexpr int kTileRows = 8;  // warps of a block
// Calls of at most so many elements, other than uniform ones, take kAny: a kernel for each mixture
// of types and layouts would take longer to compile than it is worth. MYTORCH_CUDA_GENERAL is
// another number; 0 has every kernel compiled.
extern int64_t general_limit;
inline constexpr int kAnyDims = 6;  // of kAny
inline constexpr int kAnyOperands = 16;

// What a thread of a kernel computes: so many runs of neighbours.
int runs_of(const Program& program, const Key& key);

// What follows kPrelude. The kernel's parameters, in order: each input that is there (a pointer, or
// the number), the scalars, each output wanted, how many elements (kLine) or runs there are, and
// the walk, of operands of kind kElements and kRepeated (not for kLine).
std::string pointwise_text(const Program& program, const Key& key);

}  // namespace mytorch::cuda
