// What the kernels of distances share: the pairs of matrices of a call, and distances out of range.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "mytorch/backend.h"

namespace mytorch::cpu {

// The pairs of matrices of a call; all operands are contiguous, and their batches broadcast.
class DistancePairs {
 public:
  // `out` has the batches.
  DistancePairs(const sdk::TensorView& x1, const sdk::TensorView& x2, const sdk::TensorView& out)
      : rows(x1.size(-2)), others(x2.size(-2)), size(x1.size(-1)) {
    const int batches = out.ndim() - 2;
    for (int d = 0; d < batches; ++d) count *= out.size(d);
    shape_.assign(out.shape().begin(), out.shape().begin() + batches);
    strides_[0] = strides_of(x1, rows * size);
    strides_[1] = strides_of(x2, others * size);
  }

  // The offsets of the matrices of a pair.
  std::array<int64_t, 2> at(int64_t pair) const {
    std::array<int64_t, 2> offsets = {0, 0};
    for (size_t d = shape_.size(); d-- > 0;) {
      const int64_t i = pair % shape_[d];
      pair /= shape_[d];
      for (int k = 0; k < 2; ++k) offsets[k] += i * strides_[k][d];
    }
    return offsets;
  }

  int64_t rows, others, size, count = 1;

 private:
  std::vector<int64_t> strides_of(const sdk::TensorView& x, int64_t matrix) const {
    std::vector<int64_t> strides(shape_.size(), 0);
    const size_t own = static_cast<size_t>(x.ndim()) - 2;
    for (size_t i = 1; i <= own; ++i) {
      const int64_t n = x.size(static_cast<int>(own - i));
      if (n != 1) strides[shape_.size() - i] = matrix;
      matrix *= n;
    }
    return strides;
  }

  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_[2];
};

// The elements in the type in which they are computed.
template <class W, class T>
const W* widened(mt_ctx& ctx, const sdk::TensorView& x) {
  if constexpr (std::is_same_v<W, T>) {
    return x.data<const T>();
  } else {
    const int64_t n = x.numel();
    W* const wide = sdk::scratch<W>(ctx, n);
    const T* const from = x.data<const T>();
    sdk::parallel_for(ctx, 0, n, 16384, [&](int64_t begin, int64_t end) noexcept {
      for (int64_t i = begin; i < end; ++i) wide[i] = sdk::convert<W>(from[i]);
    });
    return wide;
  }
}

// The largest difference of two rows.
template <class W>
W largest_difference(const W* x, const W* y, int64_t size) {
  W found = 0;
  for (int64_t k = 0; k < size; ++k) found = std::max(found, std::abs(x[k] - y[k]));
  return found;
}

// Sums of squares or powers below this norm have lost digits to numbers near 0.
template <class W>
W least_of(double p, int64_t size) {
  using Limits = std::numeric_limits<W>;
  const double sum = static_cast<double>(size) * (Limits::min() / Limits::epsilon());
  return static_cast<W>(std::pow(sum, 1 / p));
}

// The distance of rows whose powers are out of range.
template <class W>
W scaled_distance(const W* x, const W* y, int64_t size, double p) {
  const W unit = largest_difference(x, y, size);
  if (unit == 0 || std::isinf(unit)) return unit;
  double sum = 0;
  for (int64_t k = 0; k < size; ++k) {
    sum += std::pow(static_cast<double>(std::abs(x[k] - y[k]) / unit), p);
  }
  return static_cast<W>(static_cast<double>(unit) * std::pow(sum, 1 / p));
}

// The Euclidean distances between the rows of each pair by way of a product of matrices, which is
// twice as fast as their differences. T is a floating type; `out` has it. Returns false, without
// computing all of them, if the differences of too many rows would be needed all the same.
template <class T>
bool distances_by_products(mt_ctx& ctx, const DistancePairs& pairs, const sdk::TensorView& x1,
                           const sdk::TensorView& x2, T* out);

}  // namespace mytorch::cpu
