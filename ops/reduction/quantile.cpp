// Quantiles.
#include <algorithm>
#include <array>
#include <cmath>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/lerp.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/logical_not.h"
#include "mytorch/ops/sort.h"
#include "mytorch/ops/where.h"
#include "ops/check.h"
#include "ops/check_values.h"
#include "ops/geometry.h"

namespace mytorch::composite {
namespace {

// Returns the quantiles `q`, a vector, in the last dimension of the result.
Tensor quantiles(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                 Str interpolation, bool ignore_nan, const char* op) {
  check_type(self.dtype() == kFloat32 || self.dtype() == kFloat64, op, "self is ", self.dtype(),
             ": it must be float32 or float64");
  check_same_type(self, "self", q, "q", op);
  check_shape(q.dim() <= 1, op, "q has shape ", q.sizes(), ": give a number or a vector");
  constexpr std::array<Str, 5> kKinds{"linear", "lower", "higher", "midpoint", "nearest"};
  check_value(std::find(kKinds.begin(), kKinds.end(), interpolation) != kKinds.end(), op,
              "interpolation is '", interpolation,
              "': give linear, lower, higher, midpoint or nearest");
  const int64_t ndim = self.dim();
  const int64_t at = dim ? wrap_dim(*dim, ndim, op) : 0;
  const Tensor lines = !dim || ndim == 0 ? self.reshape({-1}) : self.transpose(at, -1);
  const int64_t n = lines.size(-1);
  check_shape(n > 0, op, "shape ", self.sizes(), " is empty: it has no quantiles");
  const Tensor sorted = std::get<0>(mytorch::sort(lines, true, -1, false));  // NaN at the end
  const Tensor nan = mytorch::isnan(sorted.detach());
  // The last rank of each line: of its elements that are not NaN, if NaN is ignored.
  const Tensor last =
      ignore_nan ? (nan.logical_not().sum({-1}, true) - 1).clamp_min(0).to(self.dtype())
                 : mytorch::full({}, static_cast<double>(n - 1), self.dtype(), self.device());
  const Tensor rank = q.reshape({-1}) * last;  // (..., numbers of q)
  const auto element = [&](const Tensor& index) {
    Dims sizes = to_dims(sorted.sizes());
    sizes.back() = q.numel();
    return sorted.gather(-1, index.detach().to(kInt64).expand(as_list(sizes)));
  };
  Tensor result;
  if (interpolation == "lower") {
    result = element(rank.floor());
  } else if (interpolation == "higher") {
    result = element(rank.ceil());
  } else if (interpolation == "nearest") {
    result = element(rank.round());
  } else {
    const Tensor weight = interpolation == "midpoint"
                              ? mytorch::where(rank == rank.floor(), 0.0, 0.5).to(self.dtype())
                              : rank - rank.floor();
    // A whole rank has one neighbor, which may be infinite.
    const Tensor low = element(rank.floor());
    result = mytorch::where(weight == 0, low, mytorch::lerp(low, element(rank.ceil()), weight));
  }
  if (!ignore_nan) result = mytorch::where(nan.any({-1}, true), NAN, result);
  // (..., q) -> (q, ...), with the reduced dimension as keepdim wants it.
  Tensor moved = result.movedim({-1}, {0});
  if (!dim || ndim == 0) {
    if (!keepdim) return moved;
    Dims ones(ndim + 1, 1);
    ones[0] = q.numel();
    return moved.reshape(as_list(ones));
  }
  // The dimension that was swapped with the last one returns to its place.
  moved = moved.unsqueeze(-1).transpose(at + 1, -1);
  return keepdim ? moved : moved.squeeze(at + 1);
}

Tensor one_quantile(const Tensor& self, double q, std::optional<int64_t> dim, bool keepdim,
                    Str interpolation, bool ignore_nan, const char* op) {
  check_value(q >= 0 && q <= 1, op, "q is ", q, ": it must be in [0, 1]");
  return quantiles(self, mytorch::full({1}, q, self.dtype(), self.device()), dim, keepdim,
                   interpolation, ignore_nan, op)
      .squeeze(0);
}

Tensor many_quantiles(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                      Str interpolation, bool ignore_nan, const char* op) {
  // Where the host cannot ask, quantiles of numbers outside are NaN.
  Tensor inside = q, outside;
  if (may_check_values(q)) {
    check_value(q.detach().min().item<double>() >= 0 && q.detach().max().item<double>() <= 1, op,
                "q has numbers outside of [0, 1]");
  } else if (q.numel() != 0) {
    outside = mytorch::logical_and(q.detach() >= 0, q.detach() <= 1).logical_not();
    inside = mytorch::where(outside, 0.0, q);
  }
  Tensor result = quantiles(self, inside, dim, keepdim, interpolation, ignore_nan, op);
  if (outside.defined()) {
    Dims sizes(result.dim(), 1);
    sizes[0] = q.numel();
    result = mytorch::where(outside.reshape(as_list(sizes)), NAN, result);
  }
  return q.dim() == 0 ? result.squeeze(0) : result;
}

}  // namespace

Tensor quantile_scalar(const Tensor& self, double q, std::optional<int64_t> dim, bool keepdim,
                       Str interpolation) {
  return one_quantile(self, q, dim, keepdim, interpolation, false, "quantile");
}
Tensor quantile_tensor(const Tensor& self, const Tensor& q, std::optional<int64_t> dim,
                       bool keepdim, Str interpolation) {
  return many_quantiles(self, q, dim, keepdim, interpolation, false, "quantile");
}
Tensor nanquantile_scalar(const Tensor& self, double q, std::optional<int64_t> dim, bool keepdim,
                          Str interpolation) {
  return one_quantile(self, q, dim, keepdim, interpolation, true, "nanquantile");
}
Tensor nanquantile_tensor(const Tensor& self, const Tensor& q, std::optional<int64_t> dim,
                          bool keepdim, Str interpolation) {
  return many_quantiles(self, q, dim, keepdim, interpolation, true, "nanquantile");
}

}  // namespace mytorch::composite
