// Copies inside kernels, between any strides.
#pragma once

#include <cstdint>

#include "mytorch/backend.h"

namespace mytorch::cuda {

// Elements of `from`, broadcast to the shape of `to`, into `to`. Of one dtype, or between float32
// and the 16-bit floats. The two do not overlap.
void move(mt_ctx& ctx, const sdk::TensorView& from, const sdk::TensorView& to);

// Zeros.
void clear(mt_ctx& ctx, const sdk::TensorView& to);

// A contiguous tensor of the shape of another one, in scratch memory.
class ContiguousScratch {
 public:
  ContiguousScratch(mt_ctx& ctx, const sdk::TensorView& like, mt_dtype dtype);
  ContiguousScratch(const ContiguousScratch&) = delete;
  sdk::TensorView view() const { return &tensor_; }

 private:
  mt_tensor tensor_;
  int64_t strides_[sdk::kMaxDims];
};

}  // namespace mytorch::cuda
