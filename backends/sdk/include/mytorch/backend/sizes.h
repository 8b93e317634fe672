// Arithmetic on sizes and positions that is defined for every int64_t.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "mytorch/backend/error.h"

#ifdef __CUDACC__
#define MYTORCH_HOST_DEVICE __host__ __device__
#else
#define MYTORCH_HOST_DEVICE
#endif

namespace mytorch::sdk {
inline namespace v1 {

// Return a + b and a * b. Throw Error(MT_ERROR_VALUE) if the result does not fit int64_t.
inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t result;
  if (!__builtin_add_overflow(a, b, &result)) return result;
  throw Error(MT_ERROR_VALUE,
              std::to_string(a) + " + " + std::to_string(b) +
                  " exceeds the range of int64: a size or an argument is too large");
}
inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t result;
  if (!__builtin_mul_overflow(a, b, &result)) return result;
  throw Error(MT_ERROR_VALUE,
              std::to_string(a) + " * " + std::to_string(b) +
                  " exceeds the range of int64: a size or an argument is too large");
}

// Returns a * b modulo 2^64. Products of a tensor's sizes exceed int64_t only if another size is 0,
// for example in the shape (0, 2^40, 2^40), and the tensor then has no elements.
MYTORCH_HOST_DEVICE constexpr int64_t wrapping_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// Returns the number of elements of a shape.
constexpr int64_t product(std::span<const int64_t> sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n = wrapping_mul(n, size);
  return n;
}

// Returns a / b, rounded up. b is positive.
MYTORCH_HOST_DEVICE constexpr int64_t divide_up(int64_t a, int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

}  // namespace v1
}  // namespace mytorch::sdk
