// Memory layouts.
#pragma once

#include "mytorch/backend/tensor.h"

namespace mytorch::sdk {
inline namespace v1 {

// Whether dimension 1 of at least 3, the channels, has stride 1 and the others are row-major.
// Strides of dimensions of size 1 do not matter.
inline bool is_channels_last(const TensorView& tensor) {
  if (tensor.ndim() < 3) return false;
  int64_t expected = 1;
  const auto follows = [&](int d) {
    if (tensor.size(d) != 1 && tensor.stride(d) != expected) return false;
    expected = wrapping_mul(expected, tensor.size(d));
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
