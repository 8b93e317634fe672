// The operators that autograd itself computes with. In gradient mode they are recorded, so that
// gradients are differentiable.
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
Tensor contiguous_copy(const Tensor& a);  // never shares memory with `a`
Tensor to(const Tensor& a, ScalarType dtype, Device device);
Tensor real(const Tensor& a);  // the real part; `a` itself if it is real
Tensor view_as_real(const Tensor& a);
Tensor view_as_complex(const Tensor& a);
Tensor empty(IntList sizes, ScalarType dtype, Device device);
Tensor zeros(IntList sizes, ScalarType dtype, Device device);
Tensor ones(IntList sizes, ScalarType dtype, Device device);
Tensor arange(int64_t end, Device device);
Tensor as_strided(const Tensor& a, IntList sizes, IntList strides, int64_t offset);
Tensor flatten(const Tensor& a);
Tensor sum(const Tensor& a, IntList dims);
// 1-dim: returns `a` with source[i] added at index[i]; repeated indices add up.
Tensor index_add(const Tensor& a, const Tensor& index, const Tensor& source);
bool has_nan(const Tensor& a);

}  // namespace mytorch::autograd::op
