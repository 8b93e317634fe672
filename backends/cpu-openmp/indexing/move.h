// Copying inside kernels: between any strides and dtypes, and an index operand as contiguous int64.
#pragma once

#include <cstdint>

#include "mytorch/backend.h"

namespace mytorch::cpu {

// Elements of `from`, broadcast and converted, into `to`. The two do not overlap.
void move(mt_ctx& ctx, const sdk::TensorView& from, const sdk::TensorView& to);

// A contiguous copy of `from`, converted, in scratch memory; its strides lie in `strides`.
mt_tensor contiguous_copy(mt_ctx& ctx, const sdk::TensorView& from, mt_dtype dtype,
                          int64_t* strides);

// An index operand of any integer type: itself where it is int64, else a contiguous copy in scratch
// memory. Sorting, gathering and scattering are then compiled for one index type.
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
