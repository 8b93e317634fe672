// Functions that composite formulas of ops.yaml call beside operators.
#pragma once

#include "core/types/dims.h"
#include "mytorch/tensor.h"

namespace mytorch::composite {

// Returns `self` converted to this type and device: `self` itself if it has both, unless `copy`.
// (copy/copy.cpp)
Tensor converted(const Tensor& self, ScalarType dtype, Device device, bool non_blocking, bool copy);

// Returns a row-major copy, which shares no memory with `self`. (copy/copy.cpp)
Tensor contiguous_copy(const Tensor& self);

// Returns the terms of a loss, their mean or their sum, by `reduction`. Throws Error(kValue),
// naming `op`, for other reductions. (loss/losses.cpp)
Tensor reduced(const Tensor& terms, Str reduction, const char* op);
// Does the same for terms of `self` and `target`. Warns, once per operator, if the two had to be
// broadcast: (4, 1) and (4) have 16 terms. (loss/losses.cpp)
Tensor loss(const Tensor& self, const Tensor& target, const Tensor& terms, Str reduction,
            const char* op);
// Does the same, and throws Error(kValue) if an element of `self` is not in [0, 1]. Checks tensors
// of the CPU only: elsewhere the check would have to wait for the device, and the terms are NaN.
Tensor loss_of_probabilities(const Tensor& self, const Tensor& target, const Tensor& terms,
                             Str reduction, const char* op);

// Returns column minus row for each element of a matrix: 0 on the main diagonal.
// (joining/shapes.cpp)
Tensor diagonal_numbers(const Tensor& self, const char* op);

// Returns beta * self + alpha * product. Does not read `self` if beta is 0. (matrix/products.cpp)
Tensor scaled_sum(const Tensor& self, const Tensor& product, const Scalar& beta,
                  const Scalar& alpha);

// Computes a convolution with `n` spatial dimensions; the batch dimension of the input is optional.
// Lists have one value, or `n`. Throws Error(kShape), naming `op`. (convolution/convolution.cpp)
Tensor convolve(const Tensor& input, const Tensor& weight, const Tensor& bias, IntList stride,
                IntList padding, IntList dilation, bool transposed, IntList output_padding,
                int64_t groups, int64_t n, const char* op);
// Does the same with padding "valid" or "same".
Tensor convolve_padded(const Tensor& input, const Tensor& weight, const Tensor& bias,
                       IntList stride, Str padding, IntList dilation, int64_t groups, int64_t n,
                       const char* op);

}  // namespace mytorch::composite
