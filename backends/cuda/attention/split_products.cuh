// Products of a warp's rows of float32 by tensor cores: a number is split into two of TF32, and
// three of the four products are added, which leaves an error of 2^-21 of the product. Fragments
// are those of tiles.cuh; rows in shared memory are kPitch elements apart.
//
// An infinity, split, becomes NaN. The functions named exact_* multiply float32 numbers instead,
// far more slowly, for callers that find NaN in a result.
#pragma once

#include <cstdint>

#include "backends/cuda/common/mma.cuh"

namespace mytorch::cuda::tiles {

struct Split {
  uint32_t high, low;
};
__device__ __forceinline__ Split split(float x) {
  const uint32_t high = __float_as_uint(x) & 0xFFFFE000u;
  return {high, __float_as_uint(x - __uint_as_float(high))};
}

// d += A B, the small products first.
__device__ __forceinline__ void multiply_split(float (&d)[4], const Split (&a)[4],
                                               const Split (&b)[2]) {
  multiply_tf32(d, a[0].low, a[1].low, a[2].low, a[3].low, b[0].high, b[1].high);
  multiply_tf32(d, a[0].high, a[1].high, a[2].high, a[3].high, b[0].low, b[1].low);
  multiply_tf32(d, a[0].high, a[1].high, a[2].high, a[3].high, b[0].high, b[1].high);
}

// s = A B^T for the 16 rows of A and 8 * kTiles rows of B.
template <int kPitch, int kWidth, int kTiles>
__device__ __forceinline__ void multiply_rows_split(float (&s)[kTiles][4], const float* a,
                                                    const float* b) {
  const int group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
  for (auto& tile : s) tile[0] = tile[1] = tile[2] = tile[3] = 0;
  a += group * kPitch + quad;
  b += group * kPitch + quad;
#pragma unroll
  for (int k = 0; k < kWidth; k += 8) {
    const Split x[4] = {split(a[k]), split(a[8 * kPitch + k]), split(a[k + 4]),
                        split(a[8 * kPitch + k + 4])};
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const Split y[2] = {split(b[8 * n * kPitch + k]), split(b[8 * n * kPitch + k + 4])};
      multiply_split(s[n], x, y);
    }
  }
}

// sum += S B for scores S (16 x 8 * kTiles) and 8 * kTiles rows of B. The sum may take the streamed
// rows of a tile in any order: columns quad and quad + 4 of the fragment are 2 quad and 2 quad + 1.
template <int kPitch, int kWidth, int kTiles>
__device__ __forceinline__ void add_products_split(float (&sum)[kWidth / 8][4],
                                                   const float (&s)[kTiles][4], const float* b) {
  const int group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  b += 2 * quad * kPitch + group;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const Split x[4] = {split(s[n][0]), split(s[n][2]), split(s[n][1]), split(s[n][3])};
#pragma unroll
    for (int k = 0; k < kWidth / 8; ++k) {
      const float* const at = b + 8 * n * kPitch + 8 * k;
      const Split y[2] = {split(at[0]), split(at[kPitch])};
      multiply_split(sum[k], x, y);
    }
  }
}

template <int kPitch, int kWidth, int kTiles>
__device__ __noinline__ void exact_multiply_rows(float (&s)[kTiles][4], const float* a,
                                                 const float* b) {
  const int group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* const x = a + (group + i / 2 * 8) * kPitch;
      const float* const y = b + (8 * n + 2 * quad + i % 2) * kPitch;
      float product = 0;
      for (int k = 0; k < kWidth; ++k) product += x[k] * y[k];
      s[n][i] = product;
    }
  }
}

template <int kPitch, int kWidth, int kTiles>
__device__ __noinline__ void exact_add_products(float (&sum)[kWidth / 8][4],
                                                const float (&s)[kTiles][4], const float* b) {
  const int group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const float* const row = b + (8 * n + c) * kPitch + 2 * quad;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float weight = __shfl_sync(0xFFFFFFFFu, s[n][2 * r + c % 2], group * 4 + c / 2);
#pragma unroll
        for (int k = 0; k < kWidth / 8; ++k) {
          sum[k][2 * r] += weight * row[8 * k];
          sum[k][2 * r + 1] += weight * row[8 * k + 1];
        }
      }
    }
  }
}

}  // namespace mytorch::cuda::tiles
