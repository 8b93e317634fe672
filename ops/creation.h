// What the bodies of creation, copies and random numbers share.
#pragma once

#include <optional>

#include "core/tensor/spec.h"
#include "core/types/dims.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Strides of a packed tensor whose dimensions lie in the order of `strides` (ATen's
// infer_contiguous_strides): what "like x" means for an x that is a permuted, sliced or broadcast
// view.
Dims packed_like(IntList sizes, IntList strides);

// Uninitialized, in the shape and order of strides of `self`.
Tensor new_like(const Tensor& self, ScalarType dtype, Device device);
// What it makes, of the same type and on the same device.
TensorSpec spec_like(const Tensor& self);

}  // namespace mytorch
