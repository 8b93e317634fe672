// What gradient formulas of ops.yaml call beside operators. All are made of differentiable operators,
// so that gradients of gradients need nothing more. `grad` is the incoming gradient.
#pragma once

#include <optional>

#include "mytorch/tensor.h"

namespace mytorch::grads {

// ---- shapes (gradients/shape.cpp) ----
// Adds up what broadcasting spread: `x` in the smaller `shape`.
Tensor sum_to(const Tensor& x, IntList shape);
// Zeros of the type and device of `like`.
Tensor zeros_like_shape(const Tensor& like, IntList shape);
Tensor copy_backward(const Tensor& grad, IntList shape, ScalarType dtype, Device device);
// The result of a reduction over `dim` of a tensor of `shape`, with the reduced dimensions as 1.
Tensor with_reduced_dims(const Tensor& x, IntList shape, OptionalIntList dim, bool keepdim);
// The number of elements that such a reduction puts into one.
int64_t reduced_count(IntList shape, OptionalIntList dim);

// ---- reductions (gradients/reduction.cpp) ----
Tensor sum_backward(const Tensor& grad, IntList shape, OptionalIntList dim, bool keepdim,
                    ScalarType dtype);
Tensor mean_backward(const Tensor& grad, IntList shape, OptionalIntList dim, bool keepdim,
                     ScalarType dtype);
Tensor prod_backward(const Tensor& grad, const Tensor& self);
Tensor prod_dim_backward(const Tensor& grad, const Tensor& self, int64_t dim, bool keepdim);
// Of amax, amin, max, min: equal elements share.
Tensor extremum_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                         OptionalIntList dim = {}, bool keepdim = false);
// Of ops whose results are elements of the input along `dim`, chosen by `indices`, each once.
Tensor value_selecting_backward(const Tensor& grad, int64_t dim, const Tensor& indices,
                                IntList shape, bool keepdim = true);
Tensor var_backward(const Tensor& grad, const Tensor& self, OptionalIntList dim,
                    const Scalar& correction, bool keepdim);
Tensor std_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                    OptionalIntList dim, const Scalar& correction, bool keepdim);
// Either gradient may be absent.
Tensor var_mean_backward(const Tensor& grad_variance, const Tensor& grad_average,
                         const Tensor& self, OptionalIntList dim, const Scalar& correction,
                         bool keepdim);
Tensor norm_backward(const Tensor& grad, const Tensor& self, const Scalar& ord,
                     const Tensor& result, OptionalIntList dim, bool keepdim);
Tensor logsumexp_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                          OptionalIntList dim, bool keepdim);

// ---- random (random.cpp) ----
// The factor of the elements that dropout keeps.
double dropout_scale(double p, std::optional<bool> train);

}  // namespace mytorch::grads
