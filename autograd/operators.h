// The operators that the library itself computes with, in one place. They are recorded like
// anybody's where gradient mode is on, which is what makes gradients differentiable again.
#pragma once

#include "mytorch/tensor.h"

namespace mytorch::autograd::op {

Tensor add(const Tensor& a, const Tensor& b);
void add_(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor clamp_min(const Tensor& a, double low);
void copy_(const Tensor& to, const Tensor& from);
void zero_(const Tensor& a);
Tensor clone(const Tensor& a);            // contiguous
Tensor contiguous_copy(const Tensor& a);  // with memory of its own
Tensor to(const Tensor& a, ScalarType dtype, Device device);
Tensor empty(IntList sizes, ScalarType dtype, Device device);
Tensor zeros(IntList sizes, ScalarType dtype, Device device);
Tensor ones(IntList sizes, ScalarType dtype, Device device);
Tensor arange(int64_t end, Device device);
Tensor as_strided(const Tensor& a, IntList sizes, IntList strides, int64_t offset);
Tensor flatten(const Tensor& a);
Tensor sum(const Tensor& a, IntList dims);
// 1-dim: a with source[i] added at index[i], repeated indices included.
Tensor index_add(const Tensor& a, const Tensor& index, const Tensor& source);
bool has_nan(const Tensor& a);

}  // namespace mytorch::autograd::op
