// What many timings of one thing say.
#pragma once

#include <cstddef>
#include <vector>

namespace mytorch::bench {

// The middle of the sorted values, the mean of the two middle ones where there is an even number of
// them. Throws Error(kValue) for none.
double median(std::vector<double> values);
// The median of the distances from `center`.
double median_deviation(const std::vector<double>& values, double center);

struct Summary {
  double median = 0;
  double mad = 0;       // of those kept: half of them lie no farther than this from the median
  double least = 0;     // of those kept
  size_t samples = 0;   // kept
  size_t outliers = 0;  // left out
};

// Leaves out what lies more than five standard deviations from the median, the deviation being
// estimated from the median absolute one (times 1.4826, for a normal distribution), because a
// stumble of the machine moves a mean and its deviation but not these. Values within 0.1 % of the
// median are never outliers: a clock that ticks coarsely makes half of them equal.
Summary summarize(const std::vector<double>& values);

}  // namespace mytorch::bench
