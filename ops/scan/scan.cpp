// Running sums, products, extrema and logarithms of sums.
#include <algorithm>
#include <cmath>

#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/cumprod.h"
#include "mytorch/ops/cumsum.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/flip.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/logaddexp.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/where.h"
#include "ops/check.h"
#include "ops/gradients.h"

namespace mytorch {
namespace {

TensorSpec running(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype,
                   const char* op) {
  wrap_dim(dim, self.dim(), op);
  return like(self, to_dims(self.sizes()),
              dtype.value_or(self.is_floating_point() ? self.dtype() : kInt64));
}

Specs<2> running_extremum(const Tensor& self, int64_t dim, const char* op) {
  wrap_dim(dim, self.dim(), op);
  const Dims sizes = to_dims(self.sizes());
  return {like(self, sizes), like(self, sizes, kInt64)};
}

// Scans a dimension by doubling: after s steps, element i combines the 2^s elements up to i.
// `combine(later, earlier)` takes and returns equally many tensors, and is associative.
template <size_t n, class Combine>
Tensors<n> scan(Tensors<n> x, int64_t dim, Combine combine) {
  const int64_t size = std::get<0>(x).size(dim);
  for (int64_t shift = 1; shift < size; shift *= 2) {
    const auto each = [&](int64_t start, int64_t length) {
      return std::apply(
          [&](const auto&... t) { return Tensors<n>{t.narrow(dim, start, length)...}; }, x);
    };
    const Tensors<n> first = each(0, shift);
    const Tensors<n> rest = combine(each(shift, size - shift), each(0, size - shift));
    [&]<size_t... i>(std::index_sequence<i...>) {
      x = Tensors<n>{mytorch::cat({std::get<i>(first), std::get<i>(rest)}, dim)...};
    }
    (std::make_index_sequence<n>());
  }
  return x;
}

template <class Combine>
Tensor scan_one(const Tensor& self, int64_t dim, Combine combine) {
  // A line of one element is its own scan, in memory of its own.
  if (self.dim() == 0 || self.size(dim) <= 1 || self.numel() == 0) return self.clone();
  return std::get<0>(scan<2>({self, self}, wrap_dim(dim, self.dim(), "scan"),
                             [&](const Tensors<2>& later, const Tensors<2>& earlier) {
                               const Tensor both =
                                   combine(std::get<0>(later), std::get<0>(earlier));
                               return Tensors<2>{both, both};
                             }));
}

// The extrema up to each element, and their indices; the last of equal ones, or of NaN.
Tensors<2> extrema(const Tensor& self, int64_t dim, bool largest) {
  dim = wrap_dim(dim, self.dim(), largest ? "cummax" : "cummin");
  const Tensor positions =
      mytorch::arange(self.dim() == 0 ? 1 : self.size(dim), kInt64, self.device());
  if (self.dim() == 0) return {self.clone(), positions.reshape(IntList())};
  Dims along(self.dim(), 1);
  along[dim] = self.size(dim);
  const Tensor indices = positions.reshape(as_list(along)).expand(self.sizes()).contiguous();
  if (self.size(dim) <= 1 || self.numel() == 0) return {self.clone(), indices};
  return scan<2>({self, indices}, dim, [&](const Tensors<2>& later, const Tensors<2>& earlier) {
    const auto& [x, i] = later;
    const auto& [y, j] = earlier;
    const Tensor wins = largest ? x >= y : x <= y;
    const Tensor takes =
        mytorch::isnan(x).logical_or(wins.logical_and(mytorch::isnan(y).logical_not()));
    return Tensors<2>{mytorch::where(takes, x, y), mytorch::where(takes, i, j)};
  });
}

// Combines steps y -> s + w * y, given as s and w.
Tensors<2> linear_steps(const Tensors<2>& later, const Tensors<2>& earlier) {
  const auto& [s, w] = later;
  const auto& [t, v] = earlier;
  return {s + w * t, w * v};
}

Tensor reversed_sum(const Tensor& x, int64_t dim) {
  return mytorch::flip(mytorch::cumsum(mytorch::flip(x, {dim}), dim), {dim});
}

}  // namespace

namespace shape {

TensorSpec cumsum(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  return running(self, dim, dtype, "cumsum");
}

TensorSpec cumprod(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  return running(self, dim, dtype, "cumprod");
}

Specs<2> cummax(const Tensor& self, int64_t dim) { return running_extremum(self, dim, "cummax"); }

Specs<2> cummin(const Tensor& self, int64_t dim) { return running_extremum(self, dim, "cummin"); }

TensorSpec logcumsumexp(const Tensor& self, int64_t dim) {
  check_floating(self, "self", "logcumsumexp");
  return running(self, dim, {}, "logcumsumexp");
}

}  // namespace shape

namespace composite {

Tensor cumprod(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  const ScalarType type = dtype.value_or(self.is_floating_point() ? self.dtype() : kInt64);
  if (type == kBool) {
    return scan_one(self.to(type), dim,
                    [](const Tensor& x, const Tensor& y) { return x.logical_and(y); });
  }
  return scan_one(self.to(type), dim, [](const Tensor& x, const Tensor& y) { return x * y; });
}

Tensors<2> cummax(const Tensor& self, int64_t dim) { return extrema(self, dim, true); }

Tensors<2> cummin(const Tensor& self, int64_t dim) { return extrema(self, dim, false); }

Tensor logcumsumexp(const Tensor& self, int64_t dim) {
  return scan_one(self, dim,
                  [](const Tensor& x, const Tensor& y) { return mytorch::logaddexp(x, y); });
}

}  // namespace composite

namespace grads {

// The gradient of x[j] is the product before x[j] times s[j] = grad[j] + x[j + 1] * s[j + 1]. These
// have no division, so that every derivative is right at zeros.
static Tensor cumprod_differentiable_backward(const Tensor& grad, const Tensor& x, int64_t dim) {
  const int64_t size = x.size(dim);
  const Tensor one = mytorch::ones_like(x.narrow(dim, 0, 1));
  const Tensor before = mytorch::cat({one, x.narrow(dim, 0, size - 1)}, dim);
  const Tensor next = mytorch::cat({one, mytorch::flip(x.narrow(dim, 1, size - 1), {dim})}, dim);
  const auto [sums, factors] = scan<2>({mytorch::flip(grad, {dim}), next}, dim, linear_steps);
  return mytorch::cumprod(before, dim) * mytorch::flip(sums, {dim});
}

Tensor cumprod_backward(const Tensor& grad, const Tensor& self, const Tensor& result, int64_t dim) {
  if (self.dim() == 0 || self.numel() == 0) return grad.to(self.dtype());
  const Tensor x = self.to(result.dtype());
  if (grad_enabled()) {
    dim = wrap_dim(dim, self.dim(), "cumprod");
    return cumprod_differentiable_backward(grad, x, dim).to(self.dtype());
  }
  // Computes the same values in fewer passes by division, whose derivative is wrong at zeros. The
  // product without x[j] is product / x[j]; without the first zero, it is that of the line with 1
  // in place of the zero; without a later zero, it is 0.
  const Tensor zero = x == 0;
  const Tensor first = zero.logical_and(mytorch::cumsum(zero, dim) == 1);
  const Tensor without = mytorch::cumprod(mytorch::where(first, 1, x), dim);
  const Tensor ordinary = reversed_sum(grad * result, dim) / mytorch::where(zero, 1, x);
  const Tensor at_zero = mytorch::where(first, reversed_sum(grad * without, dim), 0);
  return mytorch::where(zero, at_zero, ordinary).to(self.dtype());
}

// With w[i] = exp(result[i] - result[i + 1]), the sums s[i] = grad[i] + w[i] * s[i + 1] give the
// gradient s[i] * exp(self[i] - result[i]). No factor exceeds 1.
Tensor logcumsumexp_backward(const Tensor& grad, const Tensor& self, const Tensor& result,
                             int64_t dim) {
  if (self.dim() == 0 || self.numel() == 0) return grad;
  dim = wrap_dim(dim, self.dim(), "logcumsumexp");
  // exp(x - y) for x <= y: 1 for equal +infinities, and 0 for -infinity, as relative to any number.
  const auto ratio = [](const Tensor& x, const Tensor& y) {
    const Tensor infinite = x.detach() == HUGE_VAL;
    const Tensor none = infinite.logical_or(y.detach() == -HUGE_VAL);
    return mytorch::exp(mytorch::where(infinite, 0, x) - mytorch::where(none, 0, y));
  };
  const Tensor here = mytorch::flip(result, {dim});
  const int64_t size = self.size(dim);
  const Tensor last = here.narrow(dim, 0, 1);
  const Tensor next = mytorch::cat({last, here.narrow(dim, 0, size - 1)}, dim);
  const auto [sums, factors] =
      scan<2>({mytorch::flip(grad, {dim}), ratio(here, next)}, dim, linear_steps);
  return mytorch::flip(sums, {dim}) * ratio(self, result);
}

}  // namespace grads
}  // namespace mytorch
