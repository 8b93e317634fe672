// What layer, root-mean-square, batch and group normalization share: out = (x - mean) * rstd *
// weight + bias.
#pragma once

#include <tuple>

#include "core/types/dims.h"
#include "mytorch/tensor.h"

namespace mytorch::normalization {

// Everything in the type to compute in, and of shapes that broadcast to that of x.
struct Terms {
  Tensor x;       // of a group norm: (N, groups, channels of a group, elements of a plane)
  Tensor mean;    // undefined: 0, whatever x is
  Tensor rstd;    // 1 / sqrt(var + eps), var the mean of (x - mean)^2
  Tensor weight;  // undefined: 1
  Dims over;      // the dimensions that mean and rstd are taken over
  Dims others;    // those that the gradients of weight and bias are summed over
};

// Of a root mean square where `mean` is undefined.
Terms layer_norm_terms(const Tensor& input, IntList normalized_shape, const Tensor& mean,
                       const Tensor& rstd, const Tensor& weight);
// `mean`, `var` and `weight` of one element per channel.
Terms batch_norm_terms(const Tensor& input, const Tensor& mean, const Tensor& var,
                       const Tensor& weight, double eps);
// `mean` and `rstd` of shape (N, groups), `weight` of one element per channel.
Terms group_norm_terms(const Tensor& input, const Tensor& mean, const Tensor& rstd,
                       const Tensor& weight, int64_t groups);

// One value per channel, for dimension 1 of an input of `ndim` dimensions. May be undefined.
Tensor per_channel(const Tensor& x, int64_t ndim);

// The gradients with respect to x (also through mean and rstd), weight and bias, for that of out;
// those not wanted are undefined. Parameters' gradients keep the summed dimensions, with size 1.
std::tuple<Tensor, Tensor, Tensor> backward(const Terms& terms, const Tensor& grad, bool want_x,
                                            bool want_weight, bool want_bias);

// The gradients of backward() itself with respect to grad, x, mean, rstd and weight, all taken as
// independent, for those of its results, any of which may be undefined.
struct DoubleGradients {
  Tensor grad, x, mean, rstd, weight;
};
DoubleGradients double_backward(const Terms& terms, const Tensor& grad, const Tensor& grad_x,
                                const Tensor& grad_weight, const Tensor& grad_bias);

}  // namespace mytorch::normalization
