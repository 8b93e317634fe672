// Philox bits and what is made of them, vectorized; mytorch/backend/philox.h is the definition, and
// these give its results bit for bit.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// Elements are drawn in chunks of at most this many, a multiple of four blocks' lanes.
inline constexpr int64_t kRandomChunk = 1024;

// The bits of elements [4 * block, 4 * block + n), n <= kRandomChunk, of draw 0; 64 of them are
// draw 0 above draw 1. `out` has room for kRandomChunk elements, also where n is smaller.
void random_bits32(uint64_t seed, uint64_t call, uint64_t block, int64_t n, uint32_t* out);
void random_bits64(uint64_t seed, uint64_t call, uint64_t block, int64_t n, uint64_t* out);

// kRandomChunk numbers in place of their bits.
void uniform_of_bits(const uint32_t* bits, float low, float high, float* out);
void uniform_of_bits(const uint64_t* bits, double low, double high, double* out);
void normal_of_bits(const uint32_t* bits, float mean, float std, float* out);
void normal_of_bits(const uint64_t* bits, double mean, double std, double* out);

// mask = whether the bits' uniform number is below `keep`, for kRandomChunk elements; with `x`,
// y = x * mask * scale. n elements of x and y.
void dropout_of_bits(const uint32_t* bits, float keep, int64_t n, const float* x, float scale,
                     float* y, uint8_t* mask);

}  // namespace mytorch::cpu
