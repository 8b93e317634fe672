// The geometry of results that are not yet allocated, as returned by shape and view functions.
#pragma once

#include "core/types/dims.h"
#include "core/types/errors.h"
#include "mytorch/tensor.h"

namespace mytorch {

// A result to allocate.
struct TensorSpec {
  Dims sizes;
  ScalarType dtype = kFloat32;
  Device device;
  Dims strides = {};  // empty means contiguous
};

// A view of the first tensor argument. `offset` counts elements of that tensor from its first one.
// A view of another type has strides in elements of that type.
struct ViewSpec {
  Dims sizes;
  Dims strides;
  int64_t offset = 0;
  int8_t dtype = -1;  // a ScalarType, or -1: that of the tensor
};

inline TensorSpec like(const Tensor& x) { return {to_dims(x.sizes()), x.dtype(), x.device(), {}}; }
inline TensorSpec like(const Tensor& x, Dims sizes) {
  return {std::move(sizes), x.dtype(), x.device(), {}};
}
inline TensorSpec like(const Tensor& x, Dims sizes, ScalarType dtype) {
  return {std::move(sizes), dtype, x.device(), {}};
}

}  // namespace mytorch
