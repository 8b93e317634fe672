// Batch normalization of channels that lie side by side (NHWC images and matrices).
#pragma once

#include <cstdint>

#include "backends/cuda/common/channel_rows.cuh"
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/normalization/operands.cuh"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

#ifdef __CUDACC__

template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    sum_rows(ChannelRows at, const T* __restrict__ x, double* __restrict__ partial) {
  constexpr int N = kPack<T>;
  using W = Wide<T>;
  using P = Pack<T, N>;
  const OwnRows own(at, N);
  W sums[2][N] = {};  // of values and their squares
  if (own.exist()) {
    const P* from = reinterpret_cast<const P*>(x) + own.pack;
    W shift[N];
    const P begin = from[0];
#pragma unroll
    for (int i = 0; i < N; ++i) shift[i] = widen(begin.at[i]);
#pragma unroll 4
    for (int64_t row = own.first; row < at.rows; row += own.step) {
      const P pack = from[row * own.packs];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const W value = widen(pack.at[i]) - shift[i];
        sums[0][i] += value;
        sums[1][i] += value * value;
      }
    }
  }
  put_row_sums(at, sums, partial);
}

template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    apply_rows(ChannelRows at, const T* __restrict__ x, const Wide<T>* __restrict__ terms,
               T* __restrict__ y) {
  constexpr int N = kPack<T>;
  using W = Wide<T>;
  using P = Pack<T, N>;
  const OwnRows own(at, N);
  if (!own.exist()) return;
  W mean[N], scale[N], shift[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const W* of = terms + 3 * (own.pack * N + i);
    mean[i] = of[0];
    scale[i] = of[1];
    shift[i] = of[2];
  }
  const P* from = reinterpret_cast<const P*>(x) + own.pack;
  P* to = reinterpret_cast<P*>(y) + own.pack;
#pragma unroll 4
  for (int64_t row = own.last(at.rows); row >= 0; row -= own.step) {
    P pack = from[row * own.packs];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      pack.at[i] = convert<T>((widen(pack.at[i]) - mean[i]) * scale[i] + shift[i]);
    }
    to[row * own.packs] = pack;
  }
}

template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    sum_gradient_rows(ChannelRows at, const T* __restrict__ x, const T* __restrict__ grad,
                      PerChannel means, double* __restrict__ partial) {
  constexpr int N = kPack<T>;
  using W = Wide<T>;
  using P = Pack<T, N>;
  const OwnRows own(at, N);
  W sums[2][N] = {};
  if (own.exist()) {
    W mean[N];
#pragma unroll
    for (int i = 0; i < N; ++i) mean[i] = means.get<W>(own.pack * N + i, W(0));
    const P* from = reinterpret_cast<const P*>(x) + own.pack;
    const P* from_grad = reinterpret_cast<const P*>(grad) + own.pack;
#pragma unroll 2
    for (int64_t row = own.first; row < at.rows; row += own.step) {
      const P pack = from[row * own.packs], g = from_grad[row * own.packs];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const W value = widen(g.at[i]);
        sums[0][i] += value;
        sums[1][i] += value * (widen(pack.at[i]) - mean[i]);
      }
    }
  }
  put_row_sums(at, sums, partial);
}

template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    combine_rows(ChannelRows at, const T* __restrict__ x, const T* __restrict__ grad,
                 PerChannel means, const Wide<T>* __restrict__ terms, T* __restrict__ to) {
  constexpr int N = kPack<T>;
  using W = Wide<T>;
  using P = Pack<T, N>;
  const OwnRows own(at, N);
  if (!own.exist()) return;
  W mean[N], scale[N], slope[N], shift[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const W* of = terms + 3 * (own.pack * N + i);
    mean[i] = means.get<W>(own.pack * N + i, W(0));
    scale[i] = of[0];
    slope[i] = of[1];
    shift[i] = of[2];
  }
  const P* from = reinterpret_cast<const P*>(x) + own.pack;
  const P* from_grad = reinterpret_cast<const P*>(grad) + own.pack;
  P* result = reinterpret_cast<P*>(to) + own.pack;
#pragma unroll 2
  for (int64_t row = own.last(at.rows); row >= 0; row -= own.step) {
    P pack = from[row * own.packs];
    const P g = from_grad[row * own.packs];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const W value = widen(pack.at[i]) - mean[i];
      pack.at[i] = convert<T>(widen(g.at[i]) * scale[i] + value * slope[i] + shift[i]);
    }
    result[row * own.packs] = pack;
  }
}

#endif  // __CUDACC__

}  // namespace mytorch::cuda
