// Gradients of reductions.
#include <cmath>

#include "core/types/dims.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/flip.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/gradients.h"

namespace mytorch::grads {
namespace {

// Returns `value` if `condition` is true, else 0.
Tensor masked(const Tensor& condition, const Tensor& value) { return where(condition, value, 0); }

// Returns a / b, or 0 if b is 0. Never divides by 0, so that derivatives are finite, too.
Tensor quotient_or_zero(const Tensor& a, const Tensor& b) {
  const Tensor zero = b == 0;
  return where(zero, 0, a / where(zero, 1, b));
}

// Returns true for each element that equals the extremum; if that is NaN, for each NaN.
Tensor attains(const Tensor& self, const Tensor& extremum) {
  Tensor same = self.eq(extremum);
  if (!self.is_floating_point()) return same;
  return same.logical_or(logical_and(self.isnan(), extremum.isnan()));
}

// Returns the product of the elements before each element along `dim`. Doubling uses only products,
// so that every derivative is correct at zeros.
Tensor product_before(const Tensor& x, int64_t dim) {
  const int64_t n = x.size(dim);
  if (n == 0) return x;
  Tensor y = cat({ones_like(x.narrow(dim, 0, 1)), x.narrow(dim, 0, n - 1)}, dim);
  for (int64_t step = 1; step < n; step *= 2) {
    y = cat({y.narrow(dim, 0, step), y.narrow(dim, step, n - step) * y.narrow(dim, 0, n - step)},
            dim);
  }
  return y;
}

// Returns the product of all other elements along `dim`, for each element.
Tensor product_of_others(const Tensor& x, int64_t dim) {
  if (grad_enabled()) {
    const Tensor after = flip(product_before(x.flip(dim), dim), dim);
    return product_before(x, dim) * after;
  }
  // Computes the same values in fewer passes by division, whose derivative is wrong at zeros.
  const Tensor zero = x == 0;
  const Tensor zeros = zero.sum(dim, true);
  const Tensor nonzero = where(zero, 1, x);
  const Tensor product = nonzero.prod(dim, true);
  return where(zero, masked(zeros == 1, product), where(zeros == 0, product / nonzero, 0));
}

}  // namespace

Tensor sum_backward(const Tensor& grad, IntList shape, OptionalIntList dim, bool keepdim,
                    ScalarType dtype) {
  return expand(to(with_reduced_dims(grad, shape, dim, keepdim), dtype), shape);
}

Tensor mean_backward(const Tensor& grad, IntList shape, OptionalIntList dim, bool keepdim,
                     ScalarType dtype) {
  const auto n = static_cast<double>(reduced_count(shape, dim));
  return sum_backward(grad / n, shape, dim, keepdim, dtype);
}

Tensor prod_backward(const Tensor& grad, const Tensor& self) {
  if (self.dim() == 0) return grad.to(self.dtype());
  const Tensor flat = self.reshape({-1});
  return reshape(prod_dim_backward(grad, flat, 0, false), self.sizes());
}

Tensor prod_dim_backward(const Tensor& grad, const Tensor& self, int64_t dim, bool keepdim) {
  if (self.dim() == 0) return grad.to(self.dtype());
  const int64_t along = wrap_dim(dim, self.dim(), "prod");
  const Tensor outer = with_reduced_dims(grad, self.sizes(), along, keepdim);
  const Tensor others = product_of_others(self.to(grad.dtype()), along);
  return to(outer * others, self.dtype());
}

Tensor extremum_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                         OptionalIntList dim, bool keepdim) {
  const Tensor chosen = attains(self, with_reduced_dims(result, self.sizes(), dim, keepdim));
  const Tensor outer = with_reduced_dims(grad, self.sizes(), dim, keepdim);
  return masked(chosen, outer / chosen.sum(dim, true));
}

// The exponentials of -infinity are 0 relative to any finite number; relative to -infinity, the
// logarithm of their sum, they would be NaN.
Tensor logsumexp_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                          OptionalIntList dim, bool keepdim) {
  const Tensor sum = where(result.detach() == -HUGE_VAL, 0, result);
  return with_reduced_dims(grad, self.sizes(), dim, keepdim) *
         exp(self - with_reduced_dims(sum, self.sizes(), dim, keepdim));
}

Tensor value_selecting_backward(const Tensor& grad, int64_t dim, const Tensor& indices,
                                IntList shape, bool keepdim) {
  if (shape.empty()) return grad;
  const int64_t along = wrap_dim(dim, static_cast<int64_t>(shape.size()), "backward");
  return scatter(zeros_like_shape(grad, shape), along,
                 with_reduced_dims(indices, shape, along, keepdim),
                 with_reduced_dims(grad, shape, along, keepdim));
}

Tensor var_backward(const Tensor& grad, const Tensor& self, OptionalIntList dim,
                    const Scalar& correction, bool keepdim) {
  const auto n = static_cast<double>(reduced_count(self.sizes(), dim));
  const double scale = 2 / std::fmax(0, n - correction.to_double());
  const Tensor outer = with_reduced_dims(grad, self.sizes(), dim, keepdim);
  return outer * scale * (self - self.mean(dim, true));
}

Tensor std_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                    OptionalIntList dim, const Scalar& correction, bool keepdim) {
  return var_backward(quotient_or_zero(grad, result * 2), self, dim, correction, keepdim);
}

Tensor var_mean_backward(const Tensor& grad_variance, const Tensor& grad_average,
                         const Tensor& self, OptionalIntList dim, const Scalar& correction,
                         bool keepdim) {
  Tensor total;
  if (grad_variance.defined()) {
    total = var_backward(grad_variance, self, dim, correction, keepdim);
  }
  if (!grad_average.defined()) return total;
  const Tensor of_mean = mean_backward(grad_average, self.sizes(), dim, keepdim, self.dtype());
  return total.defined() ? total + of_mean : of_mean;
}

Tensor norm_backward(const Tensor& grad, const Tensor& self, const Scalar& ord,
                     const Tensor& result, OptionalIntList dim, bool keepdim) {
  const double p = ord.to_double();
  if (p == 0) return zeros_like(self);
  const Tensor norm = with_reduced_dims(result, self.sizes(), dim, keepdim);
  const Tensor outer = with_reduced_dims(grad, self.sizes(), dim, keepdim);
  const Tensor x = self.to(grad.dtype());
  Tensor gradient;
  if (p == 1) {
    gradient = outer * x.sign();
  } else if (p == 2) {
    // The quotient is in [-1, 1], whatever the norm; where that is 0, there is no gradient of any
    // order.
    gradient = outer * (x / where(norm == 0, INFINITY, norm));
  } else if (std::isinf(p)) {
    const Tensor chosen = attains(x.abs(), norm);
    gradient = masked(chosen, x.sign() * (outer / chosen.sum(dim, true)));
  } else {
    // x / |x| * (|x| / norm)^(p - 1): the quotient neither overflows nor underflows, unlike
    // separate powers of x and norm. Its limit is 0 where the norm is 0, which for p < 0 is
    // wherever an element is. At zeros of x, it is defined as 0 for 0 < p < 1, and its own gradient
    // for p < 2.
    const Tensor none = p > 0 && p < 2 ? x == 0 : norm == 0;
    const Tensor magnitude = where(none, 1, x.abs());
    const Tensor quotient = magnitude / where(none, 1, norm);
    gradient = where(none, 0, outer * (x.sign() * quotient.pow(p - 1)));
  }
  return gradient.to(self.dtype());
}

}  // namespace mytorch::grads
