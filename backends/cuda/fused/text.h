// The source text of kernels for fused programs (mytorch/abi_fused.h).
#pragma once

#include <string>

#include "backends/cuda/fused/source.h"
#include "backends/cuda/programs/key.h"

namespace mytorch::cuda {

// The bytes of a kernel's key. Operands are inputs, then outputs: kElements, kNumber, or kSingle:
// one element for all, or for each row of a kernel of rows. In kStrided and kWide, kRepeated is one
// for each run.
namespace fused_key {
inline constexpr int kDevice = 0, kForm = 1, kRun = 2, kDims = 3, kThreads = 4, kParts = 5,
                     kOperands = 8;
// Forms: contiguous elements; a strided loop over runs, below 2^31 and above; rows, whose elements
// stay in registers (kParts runs for each thread), or are read again for each reduction (kParts 0).
inline constexpr uint8_t kLine = 0, kStrided = 1, kWide = 2, kRows = 3, kWideRows = 4;
}  // namespace fused_key

inline constexpr int kFusedThreads = 128;  // of a block, unless rows are longer
inline constexpr int kFusedUnroll = 4;     // runs of a thread in kLine

// Returns the whole text. The kernel's parameters are, in order: the inputs, pointers or numbers;
// the outputs; the numbers of the calls (FusedSource::numbers); the number of elements (kLine), of
// runs, or of rows; for rows, the number of their elements, of each table the distances between
// elements of a row and between those that an index selects from, and the Faults of each check of
// an index; and, except for kLine, the loop over the operands in memory.
std::string fused_text(const FusedSource& source, const Key& key);

}  // namespace mytorch::cuda
