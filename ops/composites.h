// Functions that composite formulas of ops.yaml call beside operators.
#pragma once

#include "core/types/dims.h"
#include "mytorch/tensor.h"

namespace mytorch::composite {

// `self` with this type on this device: `self` itself if it has both, unless `copy`. (copy.cpp)
Tensor converted(const Tensor& self, ScalarType dtype, Device device, bool non_blocking, bool copy);

// The terms of a loss, their mean or their sum, by `reduction`. Throws Error(kValue) for other
// reductions, in the name of `op`. (losses.cpp)
Tensor reduced(const Tensor& terms, Str reduction, const char* op);

// Column minus row of each element of a matrix: 0 on the main diagonal. (shape_ops.cpp)
Tensor diagonal_numbers(const Tensor& self, const char* op);

// beta * self + alpha * product; `self` is not read if beta is 0. (linalg.cpp)
Tensor scaled_sum(const Tensor& self, const Tensor& product, const Scalar& beta,
                  const Scalar& alpha);

// A convolution with `n` spatial dimensions, also of an input without a batch. Lists have one
// value, or `n`. Throws Error(kShape) in the name of `op`. (convolution.cpp)
Tensor convolve(const Tensor& input, const Tensor& weight, const Tensor& bias, IntList stride,
                IntList padding, IntList dilation, bool transposed, IntList output_padding,
                int64_t groups, int64_t n, const char* op);
// The same with padding "valid" or "same".
Tensor convolve_padded(const Tensor& input, const Tensor& weight, const Tensor& bias,
                       IntList stride, Str padding, IntList dilation, int64_t groups, int64_t n,
                       const char* op);

// softmax(query @ key.mT * scale + mask), of shape (..., L, S). (attention.cpp)
Tensor attention_weights(const Tensor& query, const Tensor& key, const Tensor& attn_mask,
                         bool is_causal, double scale);

}  // namespace mytorch::composite
