#include "graph/run/closeness.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/types/errors.h"
#include "graph/run/same_bits.h"
#include "mytorch/ops/view_as_real.h"
#include "mytorch/thread_state.h"

namespace mytorch::graph {

std::vector<double> parts_of(const Tensor& tensor) {
  const LayerMask masked(~0u);
  const Tensor host = tensor.detach().to(kCPU);
  return (host.is_complex() ? view_as_real(host) : host).to(kFloat64).to_vector<double>();
}

double rounding_error(ScalarType dtype) {
  switch (to_real(dtype)) {
    case kFloat16:
      return 0x1p-10;
    case kBFloat16:
      return 0x1p-7;
    case kFloat32:
      return 0x1p-23;
    default:
      return 0x1p-52;
  }
}

double coarsest_rounding(const Graph& graph) {
  double coarsest = 0;
  for (const ValueInfo& info : graph.values) {
    if (!is_floating_point(info.dtype) && !is_complex(info.dtype)) continue;
    coarsest = std::max(coarsest, rounding_error(info.dtype));
  }
  return coarsest;
}

std::string far_apart(const Tensor& found, const Tensor& expected, double coarsest) {
  if (found.dtype() != expected.dtype() || !(found.sizes() == expected.sizes())) {
    return absl::StrCat("is ", dtype_name(found.dtype()), " of shape ", shape_str(found.sizes()),
                        " instead of ", dtype_name(expected.dtype()), " of shape ",
                        shape_str(expected.sizes()));
  }
  const std::vector<double> x = parts_of(found), y = parts_of(expected);
  const bool rounds = expected.is_floating_point() || expected.is_complex();
  double allowed = 0;
  if (rounds) {
    constexpr double kRoundings = 64;
    double largest = 1;
    for (const double each : y) {
      if (std::isfinite(each)) largest = std::max(largest, std::abs(each));
    }
    allowed = kRoundings * std::max(coarsest, rounding_error(expected.dtype())) * largest;
  }
  for (size_t k = 0; k < x.size(); ++k) {
    const double p = x[k], q = y[k];
    if (p == q || (std::isnan(p) && std::isnan(q)) || std::abs(p - q) <= allowed) continue;
    return absl::StrCat("has ", p, " instead of ", q, " as element ", k);
  }
  // A double does not tell all integers above 2^53 apart.
  return rounds || same_bits(found, expected) ? "" : "has other integers";
}

}  // namespace mytorch::graph
