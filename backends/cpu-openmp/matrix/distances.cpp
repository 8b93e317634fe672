// Distances between the rows of two matrices, and the gradient of those of the first one. The
// differences exist in registers only.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/matrix/distance_pairs.h"
#include "backends/cpu-openmp/matrix/distance_tiles.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/cdist.h"
#include "mytorch/abi_ops/cdist_backward.h"
#include "mytorch/abi_ops/pdist.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// Rows and elements from which products of matrices are faster than differences.
constexpr int64_t kLeastOfProducts = 64;

Norm norm_of(double p) {
  if (p == 0) return Norm::kCount;
  if (p == 1) return Norm::kSum;
  if (p == 2) return Norm::kSquares;
  return std::isinf(p) ? Norm::kLargest : Norm::kPowers;
}

// The rows of a task: a panel is packed for each.
int64_t rows_of_task(int64_t rows, int64_t size) {
  return std::min(rows, std::clamp<int64_t>(65536 / std::max<int64_t>(size, 1), 32, 256));
}

// Measures the distances between the rows of each pair of matrices, a tile at a time. Leaves out
// tiles without elements that the target wants: wants(row, end) tells whether there are any in this
// or a later row, before the column `end`.
template <class T, class Target>
void measure(mt_ctx& ctx, const DistancePairs& pairs, const TensorView& first_rows,
             const TensorView& other_rows, double order, const Target& target) {
  using W = sdk::Widened<T>;
  const W* const x1 = widened<W, T>(ctx, first_rows);
  const W* const x2 = &other_rows == &first_rows ? x1 : widened<W, T>(ctx, other_rows);
  const DistanceTiles<W>& tiles = distance_tiles<W>();
  const int64_t columns = tiles.columns(), size = pairs.size;
  const int64_t most = rows_of_task(pairs.rows, size);
  const int64_t strips = (pairs.rows + most - 1) / most;
  const int64_t panels = (pairs.others + columns - 1) / columns;
  const Norm norm = norm_of(order);
  const int64_t work = 1 + most * columns * std::max<int64_t>(size, 1) / 8;
  const W low = least_of<W>(order, size), p = static_cast<W>(order);
  // Neighboring tasks share the rows of a strip.
  parallel_with_scratch<W>(
      ctx, pairs.count * strips * panels, 1 + 16384 / work, (size + kDistanceRows) * columns,
      [&](W* panel, int64_t begin, int64_t end) {
        W* const tile = panel + size * columns;
        for (int64_t task = begin; task < end; ++task) {
          const int64_t j = task % panels * columns;
          const int64_t first = task / panels % strips * most;
          const int64_t pair = task / panels / strips;
          const int64_t n = std::min(columns, pairs.others - j);
          if (!target.wants(first, j + n)) continue;
          const auto [at1, at2] = pairs.at(pair);
          const W* const others = x2 + at2 + j * size;
          tiles.pack(others, n, size, panel);
          const int64_t stop = std::min(first + most, pairs.rows);
          for (int64_t i = first; i < stop && target.wants(i, j + n); i += kDistanceRows) {
            const int64_t rows = std::min(kDistanceRows, stop - i);
            const W* const own = x1 + at1 + i * size;
            const auto [result, pitch] = target.place(pair, i, j, tile, columns);
            if (tiles.measure(own, rows, panel, n, size, norm, p, low, result, pitch)) {
              for (int64_t r = 0; r < rows; ++r) {
                for (int64_t k = 0; k < n; ++k) {
                  W& each = result[r * pitch + k];
                  if (each < low || std::isinf(each)) {
                    each = scaled_distance(own + r * size, others + k * size, size, order);
                  }
                }
              }
            }
            target.store(pair, i, j, rows, n, result, pitch);
          }
        }
      });
}

// The matrices of distances, in which tiles of their own type are computed.
template <class T>
struct Matrices {
  using W = sdk::Widened<T>;
  const DistancePairs& pairs;
  T* to;

  T* at(int64_t pair, int64_t i, int64_t j) const {
    return to + (pair * pairs.rows + i) * pairs.others + j;
  }
  bool wants(int64_t, int64_t) const { return true; }
  std::pair<W*, int64_t> place(int64_t pair, int64_t i, int64_t j, W* tile, int64_t columns) const {
    if constexpr (std::is_same_v<W, T>) return {at(pair, i, j), pairs.others};
    return {tile, columns};
  }
  void store(int64_t pair, int64_t i, int64_t j, int64_t rows, int64_t n, const W* tile,
             int64_t pitch) const {
    if constexpr (std::is_same_v<W, T>) return;
    store_lines(tile, pitch, at(pair, i, j), 1, pairs.others, n, rows);
  }
};

// The triangle above the diagonal of a matrix, row by row.
template <class T>
struct Triangle {
  using W = sdk::Widened<T>;
  int64_t size;
  T* to;

  bool wants(int64_t row, int64_t end) const { return row + 1 < end; }
  std::pair<W*, int64_t> place(int64_t, int64_t, int64_t, W* tile, int64_t columns) const {
    return {tile, columns};
  }
  void store(int64_t, int64_t i, int64_t j, int64_t rows, int64_t n, const W* tile,
             int64_t pitch) const {
    for (int64_t row = i; row < i + rows; ++row) {
      // Of (row, column 0), which is not in the triangle.
      const int64_t before = row * size - row * (row + 1) / 2 - row - 1;
      const W* const from = tile + (row - i) * pitch;
      for (int64_t k = std::max(j, row + 1); k < j + n; ++k) {
        to[before + k] = sdk::convert<T>(from[k - j]);
      }
    }
  }
};

void cdist(mt_ctx& ctx, const mt_args_cdist& args) {
  const TensorView out = args.out;
  if (out.numel() == 0) return;
  sdk::visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const DistancePairs pairs(args.x1, args.x2, out);
    if (args.p == 2 && std::min({pairs.rows, pairs.others, pairs.size}) >= kLeastOfProducts &&
        distances_by_products<T>(ctx, pairs, args.x1, args.x2, out.data<T>())) {
      return;
    }
    measure<T>(ctx, pairs, args.x1, args.x2, args.p, Matrices<T>{pairs, out.data<T>()});
  });
}

void pdist(mt_ctx& ctx, const mt_args_pdist& args) {
  const TensorView out = args.out, self = args.self;
  if (out.numel() == 0) return;
  sdk::visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    measure<T>(ctx, DistancePairs(self, self, self), self, self, args.p,
               Triangle<T>{self.size(0), out.data<T>()});
  });
}

template <class T>
void add_gradients(mt_ctx& ctx, const mt_args_cdist_backward& args) {
  using W = sdk::Widened<T>;
  const TensorView out = args.out;
  const DistancePairs pairs(args.x1, args.x2, out);
  const W* const x1 = widened<W, T>(ctx, args.x1);
  const W* const x2 = widened<W, T>(ctx, args.x2);
  const T* const grad = TensorView(args.grad_output).data<const T>();
  const T* const distances = TensorView(args.distances).data<const T>();
  T* const to = out.data<T>();
  const DistanceTiles<W>& tiles = distance_tiles<W>();
  const int64_t size = pairs.size, others = pairs.others;
  // Of x2, which stay in the cache while all elements of a row are computed.
  const int64_t block = std::clamp<int64_t>(16384 / std::max<int64_t>(size, 1), 16, 512);
  const int64_t strips = (pairs.rows + kDistanceRows - 1) / kDistanceRows;
  const Norm norm = norm_of(args.p);
  const int64_t work = 1 + kDistanceRows * others * std::max<int64_t>(size, 1) / 8;
  parallel_with_scratch<W>(
      ctx, pairs.count * strips, 1 + 16384 / work, kDistanceRows * (size + 2 * block),
      [&](W* sums, int64_t begin, int64_t end) {
        W* const g = sums + kDistanceRows * size;
        W* const lengths = g + kDistanceRows * block;
        for (int64_t task = begin; task < end; ++task) {
          const int64_t pair = task / strips, i = task % strips * kDistanceRows;
          const auto [at1, at2] = pairs.at(pair);
          const int64_t rows = std::min(kDistanceRows, pairs.rows - i);
          const W* const own = x1 + at1 + i * size;
          std::fill_n(sums, rows * size, W(0));
          for (int64_t j = 0; j < others; j += block) {
            const int64_t n = std::min(block, others - j);
            const W* const other = x2 + at2 + j * size;
            for (int64_t r = 0; r < rows; ++r) {
              const int64_t from = (pair * pairs.rows + i + r) * others + j;
              for (int64_t k = 0; k < n; ++k) {
                W factor = sdk::convert<W>(grad[from + k]);
                W length = sdk::convert<W>(distances[from + k]);
                if constexpr (!std::is_same_v<W, T>) {
                  // A rounded distance equals none of the differences.
                  if (norm == Norm::kLargest) {
                    length = largest_difference(own + r * size, other + k * size, size);
                  }
                }
                if (norm == Norm::kSquares) {
                  const W divisor = length == 0 ? std::numeric_limits<W>::infinity() : length;
                  const W quotient = factor / divisor;
                  if (std::isfinite(quotient)) {
                    factor = quotient;
                  } else {  // of tiny distances, for which d / divisor is in range
                    for (int64_t m = 0; m < size; ++m) {
                      const W d = own[r * size + m] - other[k * size + m];
                      sums[r * size + m] += factor * (d / divisor);
                    }
                    factor = 0;
                  }
                } else if (norm == Norm::kLargest) {
                  factor /= std::max<W>(
                      tiles.attained(own + r * size, other + k * size, size, length), W(1));
                }
                g[r * block + k] = factor;
                lengths[r * block + k] = length;
              }
            }
            tiles.add_gradient(own, rows, other, n, size, norm, static_cast<W>(args.p), g, lengths,
                               sums, block);
          }
          T* const line = to + (pair * pairs.rows + i) * size;
          for (int64_t k = 0; k < rows * size; ++k) line[k] = sdk::convert<T>(sums[k]);
        }
      });
}

void cdist_backward(mt_ctx& ctx, const mt_args_cdist_backward& args) {
  if (TensorView(args.out).numel() == 0) return;
  sdk::visit_floating(TensorView(args.out).dtype(),
                      [&](auto tag) { add_gradients<typename decltype(tag)::type>(ctx, args); });
}

}  // namespace

void register_distances(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&cdist>("tiles"));
  kernels.push_back(sdk::kernel<&pdist>("tiles"));
  kernels.push_back(sdk::kernel<&cdist_backward>("tiles"));
}

}  // namespace mytorch::cpu
