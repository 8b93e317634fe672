// The geometry of results, before there is memory: what shape and view functions return.
#pragma once

#include "core/types/dims.h"
#include "core/types/errors.h"
#include "mytorch/tensor.h"

namespace mytorch {

// A result to be allocated.
struct TensorSpec {
  Dims sizes;
  ScalarType dtype = kFloat32;
  Device device;
  Dims strides = {};  // empty: contiguous
};

// A view of the first tensor argument. `offset` in elements, from that tensor's first element.
struct ViewSpec {
  Dims sizes;
  Dims strides;
  int64_t offset = 0;
};

inline TensorSpec like(const Tensor& x) { return {to_dims(x.sizes()), x.dtype(), x.device(), {}}; }
inline TensorSpec like(const Tensor& x, Dims sizes) {
  return {std::move(sizes), x.dtype(), x.device(), {}};
}

}  // namespace mytorch
