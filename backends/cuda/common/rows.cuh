// Rows held in registers. A row of contiguous elements belongs to a block, or to a warp if it is
// short. It is read once, with 16-byte accesses if possible, and stays in registers for further
// passes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {

// The assignment of rows of n elements to threads: `packs` packs of `width` elements per thread.
struct RowShape {
  Grid grid;
  int width, packs;
};

inline constexpr int kFewPacks = 4, kManyPacks = 8;  // for kernels that hold one row

// The number of threads of a block whose threads hold kPacks packs each, which bounds the registers
// per thread.
template <int kPacks>
inline constexpr int kRowThreads = kPacks <= 4 ? 512 : 1024;
// The least number of such blocks per multiprocessor, for kernels that hold one row.
template <int kPacks>
inline constexpr int kRowBlocks = kPacks <= 4 ? 2 : 1;

// `whole`: rows consist of whole 16-byte packs. The result has width 0 if a row does not fit in
// registers. Threads have kLeast, kFew or kMany packs.
template <class T, int kFew = kFewPacks, int kMany = kManyPacks, int kLeast = kFew>
RowShape row_shape(int64_t rows, int64_t n, bool whole) {
  RowShape shape{};
  const int width = whole ? kPack<T> : 1;
  const int64_t packs = (n + width - 1) / width;
  const int each = !whole                                  ? kMany
                   : packs <= kLeast * kRowThreads<kLeast> ? kLeast
                   : packs <= kFew * kRowThreads<kFew>     ? kFew
                                                           : kMany;
  const int64_t threads = ((packs + each - 1) / each + 31) / 32 * 32;
  if (threads > kRowThreads<kMany>) return shape;
  shape.width = width;
  shape.packs = each;
  shape.grid.threads = dim3(static_cast<unsigned>(threads), threads == 32 ? 4 : 1);
  const int64_t blocks = (rows + shape.grid.threads.y - 1) / shape.grid.threads.y;
  shape.grid.blocks = dim3(static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 30)));
  return shape;
}

// Calls f(width, packs) with both as integral constants.
template <class T, int kFew = kFewPacks, int kMany = kManyPacks, int kLeast = kFew, class F>
void with_row_shape(const RowShape& shape, F&& f) {
  if (shape.width == 1) {
    f(std::integral_constant<int, 1>{}, std::integral_constant<int, kMany>{});
  } else if (shape.packs == kLeast) {
    f(std::integral_constant<int, kPack<T>>{}, std::integral_constant<int, kLeast>{});
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

// Combines the values of a row's threads in a fixed order: of a warp if rows belong to warps, else
// of the block. `none` is the neutral element. `kApart`: a barrier lies between any two calls with
// these types, as where sums and maxima alternate.
template <bool kApart = false, class W, class Op>
__device__ __forceinline__ W row_combine(W value, Op op, W none) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, step));
  }
  if (blockDim.x == 32) return value;
  __shared__ W parts[32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if constexpr (!kApart) __syncthreads();  // all threads have read the parts of an earlier call
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / 32 ? parts[lane] : none;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, step));
  }
  return value;
}
template <bool kApart = false, class W>
__device__ __forceinline__ W row_sum(W value) {
  return row_combine<kApart>(value, AddUp(), W(0));
}
// Two sums with the barriers of one.
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
  __syncthreads();  // all threads have read the parts of an earlier call
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

// The part of a row of n elements that a thread holds, in the element's own type: one pack is 16
// bytes. `kFull`: rows fill the packs of all threads.
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
  // Adds another row, element by element, in the element's own type.
  __device__ __forceinline__ void add(const T* other, int64_t n) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!holds(p, n)) continue;
      const auto more = *reinterpret_cast<const Pack<T, kWidth>*>(other + place(p));
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        pack[p].at[k] = convert<T>(widen(pack[p].at[k]) + widen(more.at[k]));
      }
    }
  }
  __device__ __forceinline__ void store(T* row, int64_t n) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (holds(p, n)) *reinterpret_cast<Pack<T, kWidth>*>(row + place(p)) = pack[p];
    }
  }
  // Makes the compiler recompute values derived from the elements rather than keep them in
  // registers, by hiding that the elements are unchanged.
  __device__ __forceinline__ void forget() {
    if constexpr (sizeof(Pack<T, kWidth>) == 16) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        auto& bits = *reinterpret_cast<uint4*>(&pack[p]);
        asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
      }
    }
  }
  // Calls f(x) for each element of the thread's part of the row.
  template <class F>
  __device__ __forceinline__ void for_each(int64_t n, F&& f) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!holds(p, n)) continue;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) f(widen(pack[p].at[k]));
    }
  }
  // Replaces each element x by f(x).
  template <class F>
  __device__ __forceinline__ void change(int64_t n, F&& f) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!holds(p, n)) continue;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) pack[p].at[k] = convert<T>(f(widen(pack[p].at[k])));
    }
  }
  // Stores f(x, p, k) for each element x, with its pack and its position in it.
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
