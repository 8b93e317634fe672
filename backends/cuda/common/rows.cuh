// Rows held in registers: a row of contiguous elements belongs to a block (to a warp, several to a
// block, where it is short), is read once, 16 bytes at a time where that is possible, and stays in
// registers while it is gone over again.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {

// How rows of n elements are laid over threads: `packs` packs of `width` elements for each thread.
struct RowShape {
  Grid grid;
  int width, packs;
};

inline constexpr int kFewPacks = 4, kManyPacks = 8;  // what kernels that hold one row use

// Threads of a block that holds so many packs each, and so the registers of a thread.
template <int kPacks>
inline constexpr int kRowThreads = kPacks <= 4 ? 512 : 1024;
// How many such blocks a multiprocessor is to hold at least, where one row leaves the registers.
template <int kPacks>
inline constexpr int kRowBlocks = kPacks <= 4 ? 2 : 1;

// `whole`: rows are made of whole packs of 16 bytes. A width of 0: too long for registers.
template <class T, int kFew = kFewPacks, int kMany = kManyPacks>
RowShape row_shape(int64_t rows, int64_t n, bool whole) {
  RowShape shape{};
  const int width = whole ? kPack<T> : 1;
  const int64_t packs = (n + width - 1) / width;
  const int each = whole && packs <= kFew * kRowThreads<kFew> ? kFew : kMany;
  const int64_t threads = ((packs + each - 1) / each + 31) / 32 * 32;
  if (threads > kRowThreads<kMany>) return shape;
  shape.width = width;
  shape.packs = each;
  shape.grid.threads = dim3(static_cast<unsigned>(threads), threads == 32 ? 4 : 1);
  const int64_t blocks = (rows + shape.grid.threads.y - 1) / shape.grid.threads.y;
  shape.grid.blocks = dim3(static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 30)));
  return shape;
}

// Calls f with the width and the packs as constants.
template <class T, int kFew = kFewPacks, int kMany = kManyPacks, class F>
void with_row_shape(const RowShape& shape, F&& f) {
  if (shape.width == 1) {
    f(std::integral_constant<int, 1>{}, std::integral_constant<int, kMany>{});
  } else if (shape.packs == kFew) {
    f(std::integral_constant<int, kPack<T>>{}, std::integral_constant<int, kFew>{});
  } else {
    f(std::integral_constant<int, kPack<T>>{}, std::integral_constant<int, kMany>{});
  }
}

#ifdef __CUDACC__

struct AddUp {
  template <class W>
  __device__ __forceinline__ W operator()(W a, W b) const {
    return a + b;
  }
};
struct Largest {
  template <class W>
  __device__ __forceinline__ W operator()(W a, W b) const {
    return a > b ? a : b;
  }
};

// The values of a row's threads, combined in a fixed order: of a warp where rows are a warp each,
// else of the block. `none` is neutral.
template <class W, class Op>
__device__ __forceinline__ W row_combine(W value, Op op, W none) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, step));
  }
  if (blockDim.x == 32) return value;
  __shared__ W parts[32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();  // what an earlier call left has been read
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / 32 ? parts[lane] : none;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, step));
  }
  return value;
}
template <class W>
__device__ __forceinline__ W row_sum(W value) {
  return row_combine(value, AddUp(), W(0));
}
// Two sums for the waiting of one.
template <class W>
__device__ __forceinline__ void row_sums(W& a, W& b) {
  const auto add_lanes = [&] {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      a += __shfl_xor_sync(0xFFFFFFFFu, a, step);
      b += __shfl_xor_sync(0xFFFFFFFFu, b, step);
    }
  };
  add_lanes();
  if (blockDim.x == 32) return;
  __shared__ W parts[2][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();  // what an earlier call left has been read
  if (lane == 0) {
    parts[0][warp] = a;
    parts[1][warp] = b;
  }
  __syncthreads();
  const bool own = lane < blockDim.x / 32;
  a = own ? parts[0][lane] : W(0);
  b = own ? parts[1][lane] : W(0);
  add_lanes();
}

// The part of a row of n elements that a thread holds, as it lies in memory: 16 bytes a pack,
// whatever the type. `kFull`: rows fill the packs of all threads.
template <class T, int kWidth, int kPacks, bool kFull = false>
struct OwnRow {
  Pack<T, kWidth> pack[kPacks];

  __device__ __forceinline__ static int place(int p) {
    return static_cast<int>((p * blockDim.x + threadIdx.x) * kWidth);
  }
  __device__ __forceinline__ static bool holds(int p, int64_t n) { return kFull || place(p) < n; }

  __device__ __forceinline__ void load(const T* row, int64_t n) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (holds(p, n)) pack[p] = *reinterpret_cast<const Pack<T, kWidth>*>(row + place(p));
    }
  }
  // What was computed of the elements is computed again when it is used again, rather than kept in
  // registers: nothing that the compiler knows of them holds any more.
  __device__ __forceinline__ void forget() {
    if constexpr (sizeof(Pack<T, kWidth>) == 16) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        auto& bits = *reinterpret_cast<uint4*>(&pack[p]);
        asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
      }
    }
  }
  // Calls f(x) with each element that lies in the row.
  template <class F>
  __device__ __forceinline__ void for_each(int64_t n, F&& f) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!holds(p, n)) continue;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) f(widen(pack[p].at[k]));
    }
  }
  // Writes f(x) for each element x.
  template <class F>
  __device__ __forceinline__ void store(T* row, int64_t n, F&& f) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!holds(p, n)) continue;
      Pack<T, kWidth> result;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) result.at[k] = convert<T>(f(widen(pack[p].at[k]), p, k));
      *reinterpret_cast<Pack<T, kWidth>*>(row + place(p)) = result;
    }
  }
};

#endif  // __CUDACC__

}  // namespace mytorch::cuda
