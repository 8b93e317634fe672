// Euclidean distances by way of a product of matrices: |x - y|^2 = |x|^2 + |y|^2 - 2 <x, y>.
//
// The sum loses digits where it is much smaller than its terms. Subtracting a common center first
// keeps the terms small for rows that lie far from 0, and the distances of rows that are still
// closer to each other than to the center are computed from their differences.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "backends/cpu-openmp/gemm/gemm.h"
#include "backends/cpu-openmp/matrix/distance_pairs.h"
#include "backends/cpu-openmp/matrix/distance_tiles.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// Elements of a strip of products that are converted to a 16-bit type.
constexpr int64_t kStrip = int64_t{1} << 20;

constexpr int64_t kSample = 9;

// The row number i of a sample.
template <class W>
const W* sampled(const W* rows, int64_t count, int64_t size, int64_t i) {
  return rows + count * i / kSample * size;
}

// The medians of the elements of some rows, which a few rows far away do not move. Elements that
// are not finite count as 0.
template <class W>
void store_center(const W* rows, int64_t count, int64_t size, W* center) {
  for (int64_t k = 0; k < size; ++k) {
    W values[kSample];
    for (int64_t i = 0; i < kSample; ++i) {
      const W value = sampled(rows, count, size, i)[k];
      values[i] = std::isfinite(value) ? value : W(0);
    }
    std::nth_element(values, values + kSample / 2, values + kSample);
    center[k] = values[kSample / 2];
  }
}

// Returns whether most sums of products will be exact, going by the distances of a sample.
template <class W>
bool are_apart(const W* rows, int64_t count, const W* others, int64_t other_count, int64_t size,
               const W* center) {
  const DistanceTiles<W>& tiles = distance_tiles<W>();
  int64_t near = 0;
  for (int64_t i = 0; i < kSample; ++i) {
    const W* const row = sampled(rows, count, size, i);
    const W length = tiles.distance(row, center, size);
    for (int64_t j = 0; j < kSample; ++j) {
      const W* const other = sampled(others, other_count, size, j);
      const W distance = tiles.distance(row, other, size);
      const W length2 = tiles.distance(other, center, size);
      near += !(8 * distance * distance >= length * length + length2 * length2);
    }
  }
  // Those of a row from itself are always near.
  return near <= kSample + kSample * kSample / 8;
}

// The rows of one matrix, less the center, and the sums of their squares.
template <class W>
class CenteredRows {
 public:
  CenteredRows(mt_ctx& ctx, int64_t count, int64_t size)
      : count_(count),
        size_(size),
        rows_(sdk::scratch<W>(ctx, count * size)),
        squares_(sdk::scratch<W>(ctx, count)) {}

  void store(mt_ctx& ctx, const W* rows, const W* center) {
    const DistanceTiles<W>& tiles = distance_tiles<W>();
    sdk::parallel_for(ctx, 0, count_, 1 + 16384 / size_, [&](int64_t begin, int64_t end) noexcept {
      for (int64_t i = begin; i < end; ++i) {
        squares_[i] = tiles.centered(rows + i * size_, center, size_, rows_ + i * size_);
      }
    });
  }
  const W* row(int64_t i) const { return rows_ + i * size_; }
  const W* squares() const { return squares_; }

 private:
  int64_t count_, size_;
  W* rows_;
  W* squares_;
};

}  // namespace

template <class T>
bool distances_by_products(mt_ctx& ctx, const DistancePairs& pairs, const TensorView& x1,
                           const TensorView& x2, T* out) {
  using W = sdk::Widened<T>;
  constexpr bool kDirect = std::is_same_v<W, T>;
  const DistanceTiles<W>& tiles = distance_tiles<W>();
  const int64_t size = pairs.size, others = pairs.others;
  const W* const rows1 = widened<W, T>(ctx, x1);
  const W* const rows2 = widened<W, T>(ctx, x2);
  const W low = least_of<W>(2, size);
  W* const center = sdk::scratch<W>(ctx, size);
  CenteredRows<W> own(ctx, pairs.rows, size), other(ctx, others, size);
  const int64_t most = kDirect ? pairs.rows : std::clamp<int64_t>(kStrip / others, 1, pairs.rows);
  W* const strip = kDirect ? nullptr : sdk::scratch<W>(ctx, most * others);
  for (int64_t pair = 0; pair < pairs.count; ++pair) {
    const auto offsets = pairs.at(pair);
    const W* const given = rows1 + offsets[0];
    const W* const given_others = rows2 + offsets[1];
    store_center(given, pairs.rows, size, center);
    if (!are_apart(given, pairs.rows, given_others, others, size, center)) return false;
    own.store(ctx, given, center);
    other.store(ctx, given_others, center);
    for (int64_t first = 0; first < pairs.rows; first += most) {
      const int64_t count = std::min(most, pairs.rows - first);
      T* const to = out + (pair * pairs.rows + first) * others;
      W* products = strip;
      if constexpr (kDirect) products = to;
      GemmProblem problem{sdk::dtype_of<W>,
                          count,
                          others,
                          size,
                          {own.row(first), size, 1},
                          {other.row(0), 1, size},
                          {products, others, 1}};
      problem.alpha = -2;
      if (const int status = gemm(&ctx, problem); status != MT_OK) {
        throw sdk::Error(status, "[cdist] no memory for a product of matrices");
      }
      sdk::parallel_for(ctx, 0, count, 1 + 16384 / others, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          W* const line = products + i * others;
          if (tiles.finish(own.squares()[first + i], other.squares(), others, low, line)) {
            const W* const row = given + (first + i) * size;
            for (int64_t j = 0; j < others; ++j) {
              if (!std::isnan(line[j])) continue;
              const W* const with = given_others + j * size;
              line[j] = tiles.distance(row, with, size);
              if (line[j] < low || std::isinf(line[j])) {
                line[j] = scaled_distance(row, with, size, 2);
              }
            }
          }
          if constexpr (!kDirect) {
            for (int64_t j = 0; j < others; ++j) to[i * others + j] = sdk::convert<T>(line[j]);
          }
        }
      });
    }
  }
  return true;
}

template bool distances_by_products(mt_ctx&, const DistancePairs&, const TensorView&,
                                    const TensorView&, float*);
template bool distances_by_products(mt_ctx&, const DistancePairs&, const TensorView&,
                                    const TensorView&, double*);
template bool distances_by_products(mt_ctx&, const DistancePairs&, const TensorView&,
                                    const TensorView&, sdk::Half*);
template bool distances_by_products(mt_ctx&, const DistancePairs&, const TensorView&,
                                    const TensorView&, sdk::BFloat16*);

}  // namespace mytorch::cpu
