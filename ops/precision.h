// The type that bodies of several steps compute in.
#pragma once

#include "mytorch/tensor.h"

namespace mytorch {

// 16-bit floats would lose what sums of many elements need.
inline ScalarType wide_type(ScalarType type) {
  return type == kFloat16 || type == kBFloat16 ? kFloat32 : type;
}

// The tensor in that type; an undefined one stays undefined.
inline Tensor widened(const Tensor& x) {
  if (!x.defined()) return x;
  const ScalarType type = wide_type(x.dtype());
  return type == x.dtype() ? x : x.to(type);
}

}  // namespace mytorch
