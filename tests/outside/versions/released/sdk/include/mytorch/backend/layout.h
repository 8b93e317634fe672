// Layouts that kernels know by name.
#pragma once

#include "mytorch/backend/tensor.h"

namespace mytorch::sdk {
inline namespace v1 {

// Whether the channels, dimension 1 of at least 3, vary fastest, and the rest is row-major. Sizes
// of 1 do not look at strides.
inline bool is_channels_last(const TensorView& tensor) {
  if (tensor.ndim() < 3) return false;
  int64_t expected = 1;
  const auto follows = [&](int d) {
    if (tensor.size(d) != 1 && tensor.stride(d) != expected) return false;
    expected *= tensor.size(d);
    return true;
  };
  if (!follows(1)) return false;
  for (int d = tensor.ndim() - 1; d >= 2; --d) {
    if (!follows(d)) return false;
  }
  return follows(0);
}

}  // namespace v1
}  // namespace mytorch::sdk
