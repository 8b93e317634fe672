// CUDA's language for the host's compiler, so that a test can include kernels and run them on the
// emulated device (device.h). Include it before any of the backend's headers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/backends/cuda/emulated/device.h"

#define __CUDACC__
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__

// NOLINTBEGIN: CUDA's names
using mytorch::cuda::emulated::blockDim;
using mytorch::cuda::emulated::blockIdx;
using mytorch::cuda::emulated::gridDim;
using mytorch::cuda::emulated::threadIdx;

template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}

inline void __syncthreads() { mytorch::cuda::emulated::meet(false); }
inline int __syncthreads_or(int value) {
  static int any = 0;
  __syncthreads();
  if (value != 0) any = 1;
  __syncthreads();
  const int result = any;
  __syncthreads();
  any = 0;
  return result;
}
inline void __syncwarp() { mytorch::cuda::emulated::meet(true); }

template <class T>
T __shfl_sync(unsigned /*mask*/, T value, int lane) {
  return mytorch::cuda::emulated::gather(value)[static_cast<unsigned>(lane) % 32];
}
template <class T>
T __shfl_xor_sync(unsigned /*mask*/, T value, int lanes) {
  return mytorch::cuda::emulated::gather(
      value)[(mytorch::cuda::emulated::own_thread() ^ static_cast<unsigned>(lanes)) % 32];
}
inline int __any_sync(unsigned /*mask*/, bool value) {
  for (const bool each : mytorch::cuda::emulated::gather(value)) {
    if (each) return 1;
  }
  return 0;
}
inline unsigned __ballot_sync(unsigned /*mask*/, bool value) {
  const std::array<bool, 32> all = mytorch::cuda::emulated::gather(value);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= unsigned{all[lane]} << lane;
  return bits;
}
inline int __ffs(int bits) {
  return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1;
}

inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned from = selector >> (4 * i) & 7;
    result |= static_cast<uint32_t>(bytes >> (8 * from) & 0xFF) << (8 * i);
  }
  return result;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float a) { return std::exp2(a * 1.4426950f); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float rsqrtf(float a) { return 1 / std::sqrt(a); }
inline double rsqrt(double a) { return 1 / std::sqrt(a); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline uint32_t atomicCAS(uint32_t* at, uint32_t expected, uint32_t value) {
  const uint32_t old = *at;
  if (old == expected) *at = value;
  return old;
}
// NOLINTEND
