// The loop over operands whose number is known only at run time. Strides are in bytes.
#pragma once

#include <cstdint>
#include <span>

#include "mytorch/backend/iterate.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cpu {

inline constexpr int kMaxOperands = 16;

using Loop = sdk::StridedLoop<kMaxOperands>;
using Cursor = sdk::StridedCursor<kMaxOperands>;

// Sets `loop` to iterate over operands that broadcast to `shape`, in the memory order of the first
// operands.
inline void set_loop(Loop& loop, std::span<const int64_t> shape,
                     std::span<const sdk::TensorView> operands) {
  sdk::check_ndim(shape.size());
  int64_t strides[kMaxOperands][sdk::kMaxDims];
  const int64_t* pointers[kMaxOperands];
  for (size_t k = 0; k < operands.size(); ++k) {
    sdk::broadcast_strides(operands[k], shape, strides[k]);
    pointers[k] = strides[k];
  }
  loop.collapse(shape, std::span(pointers, operands.size()));
  for (size_t k = 0; k < operands.size(); ++k) {
    loop.scale(static_cast<int>(k), operands[k].itemsize());
  }
}

}  // namespace mytorch::cpu
