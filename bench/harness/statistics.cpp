#include "bench/harness/statistics.h"

#include <algorithm>
#include <cmath>

#include "mytorch/error.h"

namespace mytorch::bench {

double median(std::vector<double> values) {
  if (values.empty()) throw Error(ErrorCode::kValue, "[bench] a median needs at least one value");
  const size_t half = values.size() / 2;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(half);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double median_deviation(const std::vector<double>& values, double center) {
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::abs(value - center));
  return median(std::move(distances));
}

Summary summarize(const std::vector<double>& values) {
  const double center = median(values);
  const double deviation = 1.4826 * median_deviation(values, center);
  const double reach = std::max(5 * deviation, 1e-3 * std::abs(center));
  std::vector<double> kept;
  for (const double value : values) {
    if (std::abs(value - center) <= reach) kept.push_back(value);
  }
  Summary summary;
  summary.samples = kept.size();
  summary.outliers = values.size() - kept.size();
  summary.median = median(kept);
  summary.mad = median_deviation(kept, summary.median);
  summary.least = *std::min_element(kept.begin(), kept.end());
  return summary;
}

}  // namespace mytorch::bench
