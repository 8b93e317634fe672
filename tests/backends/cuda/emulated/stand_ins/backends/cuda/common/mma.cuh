// The instructions of the backend's mma.cuh, by their definitions. Copies to shared memory happen
// at once.
#pragma once

#include <cmath>
#include <cstring>

#include "tests/backends/cuda/emulated/language.h"

namespace mytorch::cuda {

template <class T>
float element_of(uint32_t pair, unsigned i) {
  const auto bits = static_cast<uint16_t>(pair >> (16 * i));
  if constexpr (std::is_same_v<T, __half>) {
    return __half2float(__half(__half_raw{bits}));
  } else {
    return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{bits}));
  }
}

template <class T>
void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
              uint32_t b1) {
  struct Fragments {
    uint32_t a[4], b[2];
  };
  const auto all = emulated::gather(Fragments{{a0, a1, a2, a3}, {b0, b1}});
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    float sum = d[i];
    for (unsigned k = 0; k < 16; ++k) {
      const Fragments& left = all[row % 8 * 4 + k % 8 / 2];
      const Fragments& right = all[column * 4 + k % 8 / 2];
      sum +=
          element_of<T>(left.a[row / 8 + k / 8 * 2], k % 2) * element_of<T>(right.b[k / 8], k % 2);
    }
    d[i] = sum;
  }
}

inline void multiply_tf32(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                          uint32_t b0, uint32_t b1) {
  struct Fragments {
    uint32_t a[4], b[2];
  };
  const auto all = emulated::gather(Fragments{{a0, a1, a2, a3}, {b0, b1}});
  const auto number = [](uint32_t bits) { return std::bit_cast<float>(bits & 0xFFFFE000u); };
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    float sum = d[i];
    for (unsigned k = 0; k < 8; ++k) {
      sum += number(all[row % 8 * 4 + k % 4].a[row / 8 + k / 4 * 2]) *
             number(all[column * 4 + k % 4].b[k / 4]);
    }
    d[i] = sum;
  }
}

inline uint32_t transposed(uint32_t pair) {
  const auto all = emulated::gather(pair);
  const unsigned lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
  const auto at = [&](unsigned r, unsigned c) {
    return all[r * 4 + c / 2] >> (16 * (c % 2)) & 0xFFFFu;
  };
  return at(column, row) | at(column + 1, row) << 16;
}

template <bool kTransposed>
void load_matrices(uint32_t (&to)[4], const void* row) {
  emulated::check_aligned(row, 16);
  const auto rows = emulated::gather(static_cast<const uint16_t*>(row));
  const unsigned lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const auto at = [&](unsigned r, unsigned c) { return uint32_t{rows[8 * i + r][c]}; };
    to[i] = kTransposed ? at(2 * quad, group) | at(2 * quad + 1, group) << 16
                        : at(group, 2 * quad) | at(group, 2 * quad + 1) << 16;
  }
  emulated::meet(true);  // others may still be reading
}

template <class T>
uint32_t pack(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(low, high);
    std::memcpy(&pair, &both, 4);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    std::memcpy(&pair, &both, 4);
  }
  return pair;
}

inline float power_of_2(float x) { return std::exp2(x); }

inline uint4 load_once(const void* from) {
  emulated::check_aligned(from, 16);
  return *static_cast<const uint4*>(from);
}

inline char* shared_memory() { return emulated::dynamic_shared(); }

inline void copy_async(void* to, const void* from, bool zeros) {
  emulated::check_aligned(to, 16);
  if (zeros) {
    std::memset(to, 0, 16);
  } else {
    emulated::check_aligned(from, 16);
    std::memcpy(to, from, 16);
  }
}
inline void commit_copies() {}
template <int kPending>
void wait_for_copies() {}

}  // namespace mytorch::cuda
