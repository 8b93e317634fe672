// CUDA's built-ins for kernels that are compiled for the host. The threads of a block are fibers.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#pragma GCC diagnostic ignored "-Wunknown-pragmas"

struct Index {
  unsigned x, y, z;
};
// The indices of the running fiber.
extern thread_local Index threadIdx, blockIdx, blockDim, gridDim;
// Waits at a barrier of the warp or the block.
void meet(bool warp);
// Returns the word of a thread of the block, for shuffles.
uint32_t& exchange(unsigned thread);

#define MYTORCH_PRELUDE_HOST
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline float quick_expf(float a) { return std::exp2(a * 1.4426950f); }
#define __expf quick_expf
static inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
static inline double rsqrt(double x) { return 1 / std::sqrt(x); }
static inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}
static inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
static inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
static inline double __longlong_as_double(long long bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
static inline uint32_t atomicCAS(uint32_t* at, uint32_t expected, uint32_t value) {
  const uint32_t old = *at;
  if (old == expected) *at = value;
  return old;
}
static inline uint32_t atomicInc(uint32_t* at, uint32_t most) {
  const uint32_t old = *at;
  *at = old >= most ? 0 : old + 1;
  return old;
}
static inline uint32_t __ldcg(const uint32_t* at) { return *at; }
static inline void __threadfence() {}
static inline void __syncthreads() { meet(false); }
static inline void __syncwarp() { meet(true); }
static inline uint32_t __shfl_xor_sync(uint32_t, uint32_t value, int mask) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  exchange(thread) = value;
  meet(true);
  const uint32_t got = exchange(thread ^ static_cast<unsigned>(mask));
  meet(true);
  return got;
}
static inline uint32_t __shfl_down_sync(uint32_t, uint32_t value, unsigned delta, unsigned width) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  exchange(thread) = value;
  meet(true);
  const unsigned lane = thread % 32;
  const bool inside = lane % width + delta < width;
  const uint32_t got = exchange(inside ? thread + delta : thread);
  meet(true);
  return got;
}
