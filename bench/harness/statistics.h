// Robust statistics of repeated timings.
#pragma once

#include <cstddef>
#include <vector>

namespace mytorch::bench {

// Returns the median: the middle of the sorted values, or the mean of the two middle ones. Throws
// Error(kValue) if there are none.
double median(std::vector<double> values);
// Returns the median of the distances from `center`.
double median_deviation(const std::vector<double>& values, double center);

struct Summary {
  double median = 0;
  double mad = 0;  // median absolute deviation
  double least = 0;
  size_t samples = 0;   // without outliers
  size_t outliers = 0;  // excluded from the numbers above
};

// Excludes values more than five standard deviations from the median. The standard deviation is
// estimated from the median absolute deviation (times 1.4826, for a normal distribution), because
// an interruption distorts a mean and a standard deviation, but not a median. Values within 0.1 %
// of the median are never outliers, because with a coarse clock half of the values may be equal.
Summary summarize(const std::vector<double>& values);

}  // namespace mytorch::bench
