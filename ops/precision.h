// The compute type of bodies with several steps.
#pragma once

#include "mytorch/tensor.h"

namespace mytorch {

// 16-bit floats are too imprecise for sums of many elements.
inline ScalarType wide_type(ScalarType type) {
  return type == kFloat16 || type == kBFloat16 ? kFloat32 : type;
}

// Converts the tensor to that type; an undefined tensor stays undefined.
inline Tensor widened(const Tensor& x) {
  if (!x.defined()) return x;
  const ScalarType type = wide_type(x.dtype());
  return type == x.dtype() ? x : x.to(type);
}

}  // namespace mytorch
