// Allocations for creation, copies and random numbers.
#pragma once

#include <optional>

#include "core/tensor/spec.h"
#include "core/types/dims.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Returns the strides of a dense tensor of `sizes` whose dimensions have the order of `strides`
// (ATen's infer_contiguous_strides): the layout of a tensor "like x" for a permuted, sliced or
// broadcast x.
Dims packed_like(IntList sizes, IntList strides);

// Returns an uninitialized tensor with the shape and the stride order of `self`.
Tensor new_like(const Tensor& self, ScalarType dtype, Device device);
// Returns the spec of such a tensor, with the type and device of `self`.
TensorSpec spec_like(const Tensor& self);

// Returns memory that the host is going to fill with values. To a graph that is being recorded,
// they are a constant.
Tensor empty_for_values(IntList sizes, ScalarType dtype);

}  // namespace mytorch
