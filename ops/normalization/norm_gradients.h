// Differentiation of all kinds of normalization.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types/dims.h"
#include "mytorch/tensor.h"
#include "ops/spec.h"

namespace mytorch::normalization {

// All tensors have the compute type and shapes that broadcast to that of x.
struct Terms {
  Tensor x;       // of a group norm: (N, groups, channels of a group, elements of a plane)
  Tensor mean;    // undefined (root mean square): 0
  Tensor rstd;    // 1 / sqrt(var + eps), var the mean of (x - mean)^2
  Tensor weight;  // undefined: 1
  Dims over;      // the dimensions that mean and rstd are taken over
  Dims others;    // the dimensions that the gradients of weight and bias are summed over

  Tensor centered() const { return mean.defined() ? x - mean : x; }
  Tensor x_hat() const { return centered() * rstd; }
  double count() const {
    int64_t n = 1;
    for (const int64_t d : over) n *= x.sizes()[d];
    return static_cast<double>(n);
  }
};

Terms layer_norm_terms(const Tensor& input, IntList normalized_shape, const Tensor& mean,
                       const Tensor& rstd, const Tensor& weight);

// Adds two tensors. An undefined tensor is a zero without cost.
Tensor plus(const Tensor& a, const Tensor& b);
// An undefined weight means 1.
Tensor weighted(const Tensor& x, const Tensor& weight);

// Returns `x` in the shape of `like`; undefined if one of them is.
Tensor reshaped(const Tensor& x, const Tensor& like);

Tensor if_wanted(const Tensor& x, bool wanted);

// Returns the gradient through the mean, and through a statistic whose derivative is factor / n *
// (x - mean).
Tensor through_statistics(const Terms& terms, const Tensor& grad_mean, const Tensor& grad_spread,
                          double factor);

// Returns the gradient through the mean and through rstd: d rstd / dx = -rstd^3 * (x - mean) / n.
Tensor through_rstd(const Terms& terms, const Tensor& grad_mean, const Tensor& grad_rstd);

// Returns the gradients of x (also through mean and rstd), weight and bias, given that of the
// output; those not wanted are undefined. The gradients of parameters keep the summed dimensions,
// with size 1.
Tensors<3> backward(const Terms& terms, const Tensor& grad, bool want_x, bool want_weight,
                    bool want_bias);

// Returns the gradients as results of a backward operator: in the shapes and types of `input` and
// of parameters of shape `sizes`.
Tensors<3> as_results(const Tensors<3>& gradients, const Tensor& input, const Tensor& weight,
                      IntList sizes);

// The gradients of backward() itself, given those of its results, any of which may be undefined.
// grad, x, mean, rstd and weight are treated as independent.
struct DoubleGradients {
  Tensor grad, x, mean, rstd, weight;
};

// Differentiates three results of backward() once more: with h = grad * weight, dx = rstd * (h -
// mean(h) - x_hat * mean(h * x_hat)), the sum of grad * x_hat, and the sum of grad. v is grad_x.
DoubleGradients double_backward(const Terms& terms, const Tensor& grad, const Tensor& v,
                                const Tensor& grad_weight, const Tensor& grad_bias);

// Returns the i-th incoming gradient in the compute type; undefined if the mask excluded that
// result.
Tensor incoming(const Tensor* grads, IntList mask, size_t i);

// Returns the wanted gradients among those that a backward operator returned.
Tensors<3> only(const bool* wanted, const Tensors<3>& all);

}  // namespace mytorch::normalization
