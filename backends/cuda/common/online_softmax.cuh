// Online softmax: sums of exponentials in one pass, relative to the running maximum (Milakov and
// Gimelshein, 2018), and streaming accesses for rows that do not fit in registers.
#pragma once

#include <cstdint>
#include <limits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"

namespace mytorch::cuda {

template <class W>
constexpr W kLowest = -std::numeric_limits<W>::infinity();

#ifdef __CUDACC__

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }

// Returns e^(x - shift) for a result of type T. The hardware's approximate 2^x is precise enough
// for the 16-bit types.
template <class T>
__device__ __forceinline__ Wide<T> power(Wide<T> x, Wide<T> shift = 0) {
  if constexpr (is_half<T>) {
    constexpr float kLog2 = 1.4426950408889634f;
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLog2 - shift * kLog2));
    return result;
  } else {
    return exponential(x - shift);
  }
}

// Returns the larger number; of a NaN and a number, the number.
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

template <class T, int kWidth, int kPacks>
__device__ __forceinline__ Wide<T> largest_of(const Pack<T, kWidth> (&packs)[kPacks]) {
  if constexpr (is_half<T> && kWidth % 2 == 0) {  // two elements per instruction
    using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    const Two* const pairs = reinterpret_cast<const Two*>(packs);
    Two most = pairs[0];
#pragma unroll
    for (int i = 1; i < kPacks * kWidth / 2; ++i) most = __hmax2(pairs[i], most);
    return larger(widen(most.x), widen(most.y));
  } else {
    Wide<T> most = widen(packs[0].at[0]);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) most = larger(widen(packs[p].at[k]), most);
    }
    return most;
  }
}

// The running maximum, NaNs excluded, and the sum of exponentials relative to it; the sum is 0
// while all elements are -inf. A NaN propagates through the sum.
template <class T>
struct PowerSum {
  using W = Wide<T>;
  W most = kLowest<W>, sum = 0;

  // Rescales the sum to a new maximum, which is not smaller.
  __device__ __forceinline__ void rise(W to) {
    sum *= power<T>(most, finite(to));
    most = to;
  }
  template <int kWidth, int kPacks>
  __device__ __forceinline__ void push(const Pack<T, kWidth> (&packs)[kPacks]) {
    rise(larger(largest_of(packs), most));
    const W shift = finite(most);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum += power<T>(widen(packs[p].at[k]), shift);
    }
  }

 private:
  // Keeps exponentials of -inf at 0 even if the maximum is -inf.
  __device__ __forceinline__ static W finite(W x) { return x == kLowest<W> ? W(0) : x; }
};

// Streaming accesses (evict-first) for data that is not used again.
template <class T, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> load_streaming(const T* from) {
  if constexpr (kWidth == kPack<T>) {
    const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(from));
    return *reinterpret_cast<const Pack<T, kWidth>*>(&bits);
  } else {
    return *reinterpret_cast<const Pack<T, kWidth>*>(from);
  }
}
template <class T, int kWidth>
__device__ __forceinline__ void store_streaming(T* to, const Pack<T, kWidth>& pack) {
  if constexpr (kWidth == kPack<T>) {
    __stcs(reinterpret_cast<uint4*>(to), *reinterpret_cast<const uint4*>(&pack));
  } else {
    *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
  }
}

// A pack of -inf: the neutral element of the maximum and of the sum of exponentials.
template <class T, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> lowest_pack() {
  Pack<T, kWidth> pack;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) pack.at[k] = convert<T>(kLowest<Wide<T>>);
  return pack;
}

#endif  // __CUDACC__

}  // namespace mytorch::cuda
