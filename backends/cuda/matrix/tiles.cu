// Matrix products that cuBLASLt does not support: of integers, of bools (a sum is whether any term
// is true), and without terms. Operands may have any strides.
#include <algorithm>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/matrix/product.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

constexpr int kTile = 32;  // the side of an output tile, for a block of kTile x kRows threads
constexpr int kRows = 8;   // each thread computes kTile / kRows rows
constexpr int kDepth = 32;

template <class T>
__global__ void __launch_bounds__(kTile* kRows)
    product_tiles(int64_t m, int64_t n, int64_t k, int64_t batch, int64_t tiles_across,
                  int64_t tiles, Matrix a, Matrix b, Matrix c, Matrix self, Sum<T> alpha,
                  Sum<T> beta) {
  constexpr int kOwn = kTile / kRows;
  __shared__ Sum<T> left[kTile][kDepth + 1];
  __shared__ Sum<T> right[kDepth][kTile + 1];
  const int x = threadIdx.x, y = threadIdx.y;
  for (int64_t tile = blockIdx.x; tile < tiles * batch; tile += gridDim.x) {
    const int64_t item = tile / tiles;
    const int64_t row0 = tile % tiles / tiles_across * kTile;
    const int64_t col0 = tile % tiles_across * kTile;
    const T* from_a = static_cast<const T*>(a.data) + item * a.batch;
    const T* from_b = static_cast<const T*>(b.data) + item * b.batch;
    Sum<T> sums[kOwn] = {};
    for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
      for (int i = y; i < kTile; i += kRows) {
        const int64_t row = row0 + i, deep = k0 + x;
        left[i][x] = row < m && deep < k ? as_sum(from_a[row * a.row + deep * a.col]) : Sum<T>(0);
      }
      for (int i = y; i < kDepth; i += kRows) {
        const int64_t deep = k0 + i, col = col0 + x;
        right[i][x] = deep < k && col < n ? as_sum(from_b[deep * b.row + col * b.col]) : Sum<T>(0);
      }
      __syncthreads();
      for (int d = 0; d < kDepth; ++d) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) sums[i] += left[y + i * kRows][d] * right[d][x];
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t row = row0 + y + i * kRows, col = col0 + x;
      if (row >= m || col >= n) continue;
      Sum<T> value = sums[i] * alpha;
      if (self.data != nullptr) {
        value += beta * as_sum(static_cast<const T*>(
                            self.data)[item * self.batch + row * self.row + col * self.col]);
      }
      static_cast<T*>(const_cast<void*>(c.data))[item * c.batch + row * c.row + col * c.col] =
          sum_as<T>(value);
    }
  }
}

// Returns a factor in the accumulator type.
template <class S>
S factor(const mt_scalar& scalar) {
  if constexpr (std::is_floating_point_v<S>) {
    return sdk::to<S>(scalar);
  } else {
    return static_cast<S>(sdk::to<int64_t>(scalar));
  }
}

}  // namespace

void multiply_tiles(mt_ctx& ctx, const Product& p) {
  const int64_t across = (p.n + kTile - 1) / kTile;
  const int64_t tiles = across * ((p.m + kTile - 1) / kTile);
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(std::min<int64_t>(tiles * p.batch, 1 << 20)));
  grid.threads = dim3(kTile, kRows);
  visit_type(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = Sum<T>;
    launch(ctx, "product_tiles", product_tiles<T>, grid, p.m, p.n, p.k, p.batch, across, tiles, p.a,
           p.b, p.c, p.self, factor<S>(p.alpha), factor<S>(p.beta));
  });
}

}  // namespace mytorch::cuda
