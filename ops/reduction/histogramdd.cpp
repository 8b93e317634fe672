// Histograms of points in several dimensions.
#include <cmath>
#include <tuple>
#include <vector>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/bucketize.h"
#include "mytorch/ops/linspace.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/max.h"
#include "mytorch/ops/min.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "ops/check.h"

namespace mytorch::composite {
namespace {

constexpr const char* kHistogramdd = "histogramdd";

using Histogram = std::tuple<Tensor, std::vector<Tensor>>;

// Returns the points as rows.
Tensor points_of(const Tensor& self) {
  check_floating(self, "self", kHistogramdd);
  check_shape(self.dim() >= 2, kHistogramdd, "self has shape ", self.sizes(),
              ": give points (..., coordinates)");
  return self.detach().flatten(0, -2);
}

Histogram count(const Tensor& self, const std::vector<Tensor>& edges, const Tensor& weight,
                bool density) {
  const Tensor points = points_of(self);
  const int64_t n = points.size(0), dims = points.size(1);
  check_value(static_cast<int64_t>(edges.size()) == dims && dims > 0, kHistogramdd, "bins has ",
              edges.size(), " entries: give one for each of ", dims, " coordinates");
  Tensor amount = mytorch::ones({n}, self.dtype(), self.device());
  if (weight.defined()) {
    check_same_type(self, "self", weight, "weight", kHistogramdd);
    check_shape(weight.numel() == n, kHistogramdd, "weight has shape ", weight.sizes(),
                ", but there are ", n, " points");
    amount = weight.detach().reshape({n});
  }
  Dims shape;
  Tensor index = mytorch::zeros({n}, kInt64, self.device());
  Tensor inside = mytorch::ones({n}, kBool, self.device());
  for (int64_t d = 0; d < dims; ++d) {
    const Tensor& edge = edges[static_cast<size_t>(d)];
    check_same_type(self, "self", edge, "bins", kHistogramdd);
    check_shape(edge.dim() == 1 && edge.numel() >= 2, kHistogramdd, "the edges of coordinate ", d,
                " have shape ", edge.sizes(), ": give a vector of at least two");
    const int64_t bins = edge.numel() - 1;
    shape.push_back(bins);
    const Tensor x = points.select(1, d).contiguous();
    inside = mytorch::logical_and(
        inside, mytorch::logical_and(x >= edge.select(0, 0), x <= edge.select(0, bins)));
    // The last bin includes its upper edge.
    const Tensor bin =
        mytorch::bucketize(x, edge.contiguous(), false, true).sub(1).clamp(0, bins - 1);
    index = index * bins + bin;
  }
  const int64_t total = checked_product(as_list(shape), kHistogramdd);
  constexpr int64_t kMost = int64_t{1} << 31;
  check_value(total <= kMost, kHistogramdd, "there are ", total, " boxes, more than ", kMost);
  Tensor hist = mytorch::zeros({total}, self.dtype(), self.device())
                    .scatter_add(0, index, mytorch::where(inside, amount, 0))
                    .reshape(as_list(shape));
  if (density) {
    hist = hist / hist.sum();
    for (int64_t d = 0; d < dims; ++d) {
      const Tensor& edge = edges[static_cast<size_t>(d)];
      const int64_t bins = shape[static_cast<size_t>(d)];
      Dims along(static_cast<size_t>(dims), 1);
      along[static_cast<size_t>(d)] = bins;
      hist = hist / (edge.narrow(0, 1, bins) - edge.narrow(0, 0, bins)).reshape(as_list(along));
    }
  }
  return {hist, edges};
}

// Returns the edges of `bins` equal bins of each coordinate.
std::vector<Tensor> edges_of(const Tensor& self, IntList bins, OptionalFloatList range) {
  const Tensor points = points_of(self);
  const int64_t dims = points.size(1);
  check_value(static_cast<int64_t>(bins.size()) == dims, kHistogramdd, "bins has ", bins.size(),
              " entries: give one for each of ", dims, " coordinates");
  check_value(!range.has_value() || static_cast<int64_t>(range->size()) == 2 * dims, kHistogramdd,
              "range has ", range.has_value() ? range->size() : 0,
              " numbers: give two for each of ", dims, " coordinates");
  std::vector<Tensor> edges;
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t count = bins[static_cast<size_t>(d)];
    constexpr int64_t kMost = int64_t{1} << 31;
    check_value(count > 0 && count <= kMost, kHistogramdd, "bins is ", count,
                ": it must be in [1, ", kMost, "]");
    double low = 0, high = 1;
    if (range.has_value()) {
      low = (*range)[static_cast<size_t>(2 * d)], high = (*range)[static_cast<size_t>(2 * d + 1)];
    } else if (points.size(0) > 0) {
      const Tensor x = points.select(1, d);
      low = mytorch::min(x).to(kFloat64).item<double>();
      high = mytorch::max(x).to(kFloat64).item<double>();
    }
    if (low == high) low -= 0.5, high += 0.5;
    check_value(low < high && high - low < HUGE_VAL, kHistogramdd, "the range from ", low, " to ",
                high, " is not finite and ascending");
    edges.push_back(mytorch::linspace(low, high, count + 1, self.dtype(), self.device()));
  }
  return edges;
}

}  // namespace

Histogram histogramdd_counts(const Tensor& self, IntList bins, OptionalFloatList range,
                             const Tensor& weight, bool density) {
  return count(self, edges_of(self, bins, range), weight, density);
}

Histogram histogramdd_count(const Tensor& self, int64_t bins, OptionalFloatList range,
                            const Tensor& weight, bool density) {
  const Tensor points = points_of(self);
  const std::vector<int64_t> each(static_cast<size_t>(points.size(1)), bins);
  return count(self, edges_of(self, each, range), weight, density);
}

Histogram histogramdd_edges(const Tensor& self, TensorList bins, OptionalFloatList /*range*/,
                            const Tensor& weight, bool density) {
  std::vector<Tensor> edges;
  for (const Tensor& edge : bins) edges.push_back(edge.detach().clone());
  return count(self, edges, weight, density);
}

}  // namespace mytorch::composite
