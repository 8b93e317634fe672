// Allocation shared by creation, copies and random numbers.
#pragma once

#include <optional>

#include "core/tensor/spec.h"
#include "core/types/dims.h"
#include "mytorch/tensor.h"

namespace mytorch {

// The strides of a dense tensor of `sizes` whose dimensions have the order of `strides` (ATen's
// infer_contiguous_strides): the layout of a tensor "like x" for a permuted, sliced or broadcast x.
Dims packed_like(IntList sizes, IntList strides);

// An uninitialized tensor with the shape and the order of strides of `self`.
Tensor new_like(const Tensor& self, ScalarType dtype, Device device);
// The spec of such a tensor, with the type and device of `self`.
TensorSpec spec_like(const Tensor& self);

}  // namespace mytorch
