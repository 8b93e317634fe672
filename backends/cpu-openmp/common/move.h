// Copies inside kernels, between any strides and dtypes.
#pragma once

#include <cstdint>

#include "mytorch/backend.h"

namespace mytorch::cpu {

// Copies the elements of `from`, broadcast and converted, to `to`. The two do not overlap.
void move(mt_ctx& ctx, const sdk::TensorView& from, const sdk::TensorView& to);

// Returns a contiguous, converted copy of `from` in scratch memory, whose strides are stored in
// `strides`.
mt_tensor contiguous_copy(mt_ctx& ctx, const sdk::TensorView& from, mt_dtype dtype,
                          int64_t* strides);

// An index operand of any integer type as int64: itself, or a contiguous copy in scratch memory.
// Kernels are therefore compiled for one index type.
class IndexOperand {
 public:
  IndexOperand(mt_ctx& ctx, const mt_tensor* index);
  IndexOperand(const IndexOperand&) = delete;
  sdk::TensorView view() const { return tensor_; }

 private:
  const mt_tensor* tensor_;
  mt_tensor copy_;
  int64_t strides_[sdk::kMaxDims];
};

}  // namespace mytorch::cpu
