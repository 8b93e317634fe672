// Vectorized Philox bits, and the random numbers made of them. mytorch/backend/philox.h is the
// definition, which these functions match bit for bit.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// Elements are drawn in chunks of at most this many, a multiple of the elements that vectors of
// four blocks give.
inline constexpr int64_t kRandomChunk = 1024;

struct RandomFns {
  // The bits of elements [4 * block, 4 * block + n), n <= kRandomChunk, of draw 0; 64 bits are draw
  // 0 above draw 1. `out` has room for kRandomChunk elements even if n is smaller.
  void (*bits32)(uint64_t seed, uint64_t call, uint64_t block, int64_t n, uint32_t* out);
  void (*bits64)(uint64_t seed, uint64_t call, uint64_t block, int64_t n, uint64_t* out);
  // kRandomChunk numbers from their bits.
  void (*uniform_float)(const uint32_t* bits, float low, float high, float* out);
  void (*uniform_double)(const uint64_t* bits, double low, double high, double* out);
  void (*normal_float)(const uint32_t* bits, float mean, float std, float* out);
  void (*normal_double)(const uint64_t* bits, double mean, double std, double* out);
  // mask = whether the bits' uniform number is below `keep`, for kRandomChunk elements. With `x`:
  // y = x * mask * scale, for n elements.
  void (*dropout)(const uint32_t* bits, float keep, int64_t n, const float* x, float scale,
                  float* y, uint8_t* mask);
};

const RandomFns* random_fns();

}  // namespace mytorch::cpu
