// Statistics that consist of other operators.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/amin.h"
#include "mytorch/ops/bincount.h"
#include "mytorch/ops/bucketize.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/linspace.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/nansum.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/std.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "ops/check.h"
#include "ops/precision.h"

namespace mytorch::composite {
namespace {

struct Bins {
  Tensor index;   // of the bin of each element
  Tensor inside;  // whether the element is in any
};

// Finds the bins between ascending `edges` of the elements of a vector. An element on an edge is in
// the bin that begins there; the last bin includes its upper edge.
Bins bins_of(const Tensor& x, const Tensor& edges) {
  const int64_t n = edges.numel() - 1;
  const Tensor inside = (x >= edges.narrow(0, 0, 1)).logical_and(x <= edges.narrow(0, n, 1));
  return {mytorch::bucketize(x, edges.contiguous(), false, true).sub(1).clamp(0, n - 1), inside};
}

}  // namespace

Tensors<2> std_mean(const Tensor& self, OptionalIntList dim, const Scalar& correction,
                    bool keepdim) {
  check_type(is_differentiable(self.dtype()), "std_mean", "self is ", self.dtype(),
             ": it must be of a floating or complex type");
  return {mytorch::std(self, dim, correction, keepdim), mytorch::mean(self, dim, keepdim)};
}

Tensor bincount(const Tensor& self, const Tensor& weights, int64_t minlength) {
  const char* op = "bincount";
  check_shape(self.dim() == 1, op, "self has shape ", self.sizes(), ": it must be a vector");
  check_type(is_integral(self.dtype()), op, "self is ", self.dtype(), ": it must be integral");
  check_value(minlength >= 0, op, "minlength is ", minlength, ": it must not be negative");
  ScalarType type = kInt64;
  if (weights.defined()) {
    check_shape(weights.sizes() == self.sizes(), op, "weights of shape ", weights.sizes(),
                " do not match self, of shape ", self.sizes());
    type = weights.dtype() == kFloat32 ? kFloat32 : kFloat64;
  }
  int64_t size = minlength;
  if (self.numel() > 0) {
    check_value(self.min().item().to<int64_t>() >= 0, op, "self has a negative element");
    const int64_t largest = self.max().item().to<int64_t>();
    size = std::max(size, checked(Wide{largest} + 1, op, "the number of counts"));
  }
  const Tensor counts = mytorch::zeros({size}, type, self.device());
  const Tensor index = self.to(kInt64);
  return counts.scatter_add(
      0, index,
      weights.defined() ? weights.to(type) : mytorch::ones(self.sizes(), type, self.device()));
}

Tensor nanmean(const Tensor& self, OptionalIntList dim, bool keepdim,
               std::optional<ScalarType> dtype) {
  check_floating(self, "self", "nanmean");
  const Tensor count = mytorch::isnan(self.detach()).logical_not().sum(dim, keepdim);
  // A sum that exceeds 16 bits may have a mean that does not.
  const ScalarType type = dtype.value_or(self.dtype()), wide = wide_type(type);
  return (mytorch::nansum(self, dim, keepdim, wide) / count.to(wide)).to(type);
}

Tensors<2> aminmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  if (!dim) return {mytorch::amin(self, {}, keepdim), mytorch::amax(self, {}, keepdim)};
  return {mytorch::amin(self, *dim, keepdim), mytorch::amax(self, *dim, keepdim)};
}

Tensors<2> histogram_edges(const Tensor& self, const Tensor& bins, const Tensor& weight,
                           bool density) {
  const char* op = "histogram";
  check_floating(self, "self", op);
  check_same_type(self, "self", bins, "bins", op);
  check_shape(bins.dim() == 1 && bins.numel() >= 2, op, "bins has shape ", bins.sizes(),
              ": it must be a vector of at least two edges");
  const Tensor x = self.detach().reshape({-1}), edges = bins.detach();
  const int64_t n = edges.numel() - 1;
  Tensor amount = mytorch::ones({x.numel()}, self.dtype(), self.device());
  if (weight.defined()) {
    check_same_type(self, "self", weight, "weight", op);
    check_shape(weight.sizes() == self.sizes(), op, "weight of shape ", weight.sizes(),
                " does not match self, of shape ", self.sizes());
    amount = weight.detach().reshape({-1});
  }
  const Bins found = bins_of(x, edges);
  Tensor hist = mytorch::zeros({n}, self.dtype(), self.device())
                    .scatter_add(0, found.index, mytorch::where(found.inside, amount, 0));
  if (density) hist = hist / hist.sum() / (edges.narrow(0, 1, n) - edges.narrow(0, 0, n));
  return {hist, edges.clone()};
}

Tensors<2> histogram_count(const Tensor& self, int64_t bins, OptionalFloatList range,
                           const Tensor& weight, bool density) {
  const char* op = "histogram";
  check_floating(self, "self", op);
  constexpr int64_t kMost = int64_t{1} << 31;
  check_value(bins > 0 && bins <= kMost, op, "bins is ", bins, ": it must be in [1, ", kMost, "]");
  double low = 0, high = 1;
  if (range.has_value()) {
    check_value(range->size() == 2, op, "range has ", range->size(), " numbers: give two");
    low = (*range)[0], high = (*range)[1];
  } else if (self.numel() > 0) {
    low = self.detach().min().to(kFloat64).item<double>();
    high = self.detach().max().to(kFloat64).item<double>();
  }
  if (low == high) low -= 0.5, high += 0.5;
  check_value(low < high && high - low < HUGE_VAL, op, "the range from ", low, " to ", high,
              " is not finite and ascending");
  const Tensor edges = mytorch::linspace(low, high, bins + 1, self.dtype(), self.device());
  return histogram_edges(self, edges, weight, density);
}

Tensor histc(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  const char* op = "histc";
  check_floating(self, "self", op);
  check_value(bins > 0, op, "bins is ", bins, ": it must be positive");
  constexpr int64_t kMost = int64_t{1} << 31;
  check_value(bins <= kMost, op, "bins is ", bins, ", more than ", kMost);
  const Tensor x = self.detach().reshape({-1});
  double low = min.to<double>(), high = max.to<double>();
  if (low == high && x.numel() > 0) {
    low = x.min().to(kFloat64).item<double>();
    high = x.max().to(kFloat64).item<double>();
  }
  if (low == high) low -= 1, high += 1;
  check_value(low < high && high - low < HUGE_VAL, op, "the range from ", low, " to ", high,
              " is not finite and ascending");
  const Tensor edges = mytorch::linspace(low, high, bins + 1, self.dtype(), self.device());
  const Bins found = bins_of(x, edges);
  return mytorch::zeros({bins}, kInt64, self.device())
      .scatter_add(0, found.index, found.inside.to(kInt64))
      .to(self.dtype());
}

}  // namespace mytorch::composite
