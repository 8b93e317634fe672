// The arguments of _fft_c2c, _fft_r2c and _fft_c2r.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "mytorch/backend/iterate.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::sdk {
inline namespace v1 {

// Returns the dimensions of a list, which may count from the end.
inline std::vector<int> fourier_dims(const mt_int_list& list, const TensorView& x) {
  std::vector<int> dims;
  for (const int64_t d : to_span(list)) dims.push_back(wrap_dim(d, x.ndim()));
  return dims;
}

// Returns the factor of the results for a `normalization` of 0, 1 or 2: 1, or 1 over the root of
// the number of points, or over that number.
inline double fourier_factor(int64_t normalization, const TensorView& points,
                             const std::vector<int>& dims) {
  double n = 1;
  for (const int d : dims) n *= static_cast<double>(points.size(d));
  return normalization == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(n) : 1 / n;
}

// Returns the largest prime factor of a length of 2 or more, which decides how it is transformed; 1
// of 1.
inline int64_t largest_factor(int64_t n) {
  int64_t largest = 1;
  for (int64_t p = 2; p * p <= n; ++p) {
    for (; n % p == 0; n /= p) largest = p;
  }
  return std::max(largest, n);
}

}  // namespace v1
}  // namespace mytorch::sdk
