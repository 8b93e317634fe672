// Copies between operands of any strides, for use within kernels.
#pragma once

#include <cstdint>

#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

// Copies `from`, broadcast to the shape of `to`, into `to`. The dtypes are equal, or float32 and a
// 16-bit float. The operands do not overlap. Throws Error(MT_ERROR_INTERNAL) for other dtypes.
void move(mt_ctx& ctx, const sdk::TensorView& from, const sdk::TensorView& to);

// Sets all elements to zero.
void clear(mt_ctx& ctx, const sdk::TensorView& to);

// A contiguous tensor with the shape of another tensor, in scratch memory.
class ContiguousScratch {
 public:
  ContiguousScratch(mt_ctx& ctx, const sdk::TensorView& like, mt_dtype dtype);
  ContiguousScratch(const ContiguousScratch&) = delete;
  sdk::TensorView view() const { return &tensor_; }

 private:
  mt_tensor tensor_;
  int64_t strides_[sdk::kMaxDims];
};

// Returns the elements of `x` in order, without gaps: its own memory, or a copy in scratch memory.
inline void* contiguous_data(mt_ctx& ctx, const sdk::TensorView& x) {
  if (x.is_contiguous()) return x.raw();
  const ContiguousScratch copy(ctx, x, x.dtype());
  move(ctx, x, copy.view());
  return copy.view().raw();
}

}  // namespace mytorch::cuda
