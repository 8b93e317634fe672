// Gradients of reductions.
#include <cmath>

#include "core/types/dims.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/flip.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/logical_or.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/prod.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/sign.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/gradients.h"

namespace mytorch::grads {
namespace {

// `value` where `condition` holds, else 0.
Tensor masked(const Tensor& condition, const Tensor& value) { return where(condition, value, 0); }

// a / b, and 0 where b is 0, also in derivatives: there nothing is divided by 0.
Tensor quotient_or_zero(const Tensor& a, const Tensor& b) {
  const Tensor zero = eq(b, 0);
  return where(zero, 0, div(a, where(zero, 1, b)));
}

// Where `self` has the value of the extremum; of a NaN, where NaN is.
Tensor attains(const Tensor& self, const Tensor& extremum) {
  Tensor same = eq(self, extremum);
  if (!self.is_floating_point()) return same;
  return logical_or(same, logical_and(isnan(self), isnan(extremum)));
}

// For each element the product of those before it along `dim`. By doubling: only products, so that
// zeros are right in every derivative.
Tensor product_before(const Tensor& x, int64_t dim) {
  const int64_t n = x.size(dim);
  if (n == 0) return x;
  Tensor y = cat({ones_like(narrow(x, dim, 0, 1)), narrow(x, dim, 0, n - 1)}, dim);
  for (int64_t step = 1; step < n; step *= 2) {
    y = cat(
        {narrow(y, dim, 0, step), mul(narrow(y, dim, step, n - step), narrow(y, dim, 0, n - step))},
        dim);
  }
  return y;
}

// For each element the product of all others along `dim`.
Tensor product_of_others(const Tensor& x, int64_t dim) {
  if (grad_enabled()) {
    const Tensor after = flip(product_before(flip(x, dim), dim), dim);
    return mul(product_before(x, dim), after);
  }
  // The same values in fewer passes, but dividing; not to be differentiated where elements are
  // zero.
  const Tensor zero = eq(x, 0);
  const Tensor zeros = sum(zero, dim, true);
  const Tensor nonzero = where(zero, 1, x);
  const Tensor product = prod(nonzero, dim, true);
  return where(zero, masked(eq(zeros, 1), product), where(eq(zeros, 0), div(product, nonzero), 0));
}

}  // namespace

Tensor sum_backward(const Tensor& grad, IntList shape, OptionalIntList dim, bool keepdim,
                    ScalarType dtype) {
  return expand(to(with_reduced_dims(grad, shape, dim, keepdim), dtype), shape);
}

Tensor mean_backward(const Tensor& grad, IntList shape, OptionalIntList dim, bool keepdim,
                     ScalarType dtype) {
  const auto n = static_cast<double>(reduced_count(shape, dim));
  return sum_backward(div(grad, n), shape, dim, keepdim, dtype);
}

Tensor prod_backward(const Tensor& grad, const Tensor& self) {
  if (self.dim() == 0) return to(grad, self.dtype());
  const Tensor flat = reshape(self, {-1});
  return reshape(prod_dim_backward(grad, flat, 0, false), self.sizes());
}

Tensor prod_dim_backward(const Tensor& grad, const Tensor& self, int64_t dim, bool keepdim) {
  if (self.dim() == 0) return to(grad, self.dtype());
  const int64_t along = wrap_dim(dim, self.dim(), "prod");
  const Tensor outer = with_reduced_dims(grad, self.sizes(), along, keepdim);
  const Tensor others = product_of_others(to(self, grad.dtype()), along);
  return to(mul(outer, others), self.dtype());
}

Tensor extremum_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                         OptionalIntList dim, bool keepdim) {
  const Tensor chosen = attains(self, with_reduced_dims(result, self.sizes(), dim, keepdim));
  const Tensor outer = with_reduced_dims(grad, self.sizes(), dim, keepdim);
  return masked(chosen, div(outer, sum(chosen, dim, true)));
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
  return mul(mul(outer, scale), sub(self, mean(self, dim, true)));
}

Tensor std_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                    OptionalIntList dim, const Scalar& correction, bool keepdim) {
  return var_backward(quotient_or_zero(grad, mul(result, 2)), self, dim, correction, keepdim);
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
  return total.defined() ? add(total, of_mean) : of_mean;
}

Tensor norm_backward(const Tensor& grad, const Tensor& self, const Scalar& ord,
                     const Tensor& result, OptionalIntList dim, bool keepdim) {
  const double p = ord.to_double();
  if (p == 0) return zeros_like(self);
  const Tensor norm = with_reduced_dims(result, self.sizes(), dim, keepdim);
  const Tensor outer = with_reduced_dims(grad, self.sizes(), dim, keepdim);
  const Tensor x = to(self, grad.dtype());
  Tensor gradient;
  if (p == 1) {
    gradient = mul(outer, sign(x));
  } else if (p == 2) {
    gradient = mul(x, quotient_or_zero(outer, norm));
  } else if (std::isinf(p)) {
    const Tensor chosen = attains(abs(x), norm);
    gradient = masked(chosen, mul(sign(x), div(outer, sum(chosen, dim, true))));
  } else {
    // x / |x| * (|x| / norm)^(p - 1): the quotient neither overflows nor underflows, as its powers
    // would one by one. Its limit is 0 where the norm is, and, for p < 1, is taken as 0 at zeros.
    const Tensor none = p < 1 ? eq(x, 0) : eq(norm, 0);
    const Tensor magnitude = where(none, 1, abs(x));
    const Tensor quotient = div(magnitude, where(none, 1, norm));
    gradient = where(none, 0, mul(outer, mul(sign(x), pow(quotient, p - 1))));
  }
  return to(gradient, self.dtype());
}

Tensor logsumexp_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                          OptionalIntList dim, bool keepdim) {
  const Tensor norm = with_reduced_dims(result, self.sizes(), dim, keepdim);
  return mul(with_reduced_dims(grad, self.sizes(), dim, keepdim), exp(sub(self, norm)));
}

}  // namespace mytorch::grads
