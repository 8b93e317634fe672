// Arithmetic on sizes, strides and parameters that may overflow int64: compute in Wide, then
// convert the result with checked().
#pragma once

#include <cstdint>

#include "core/types/errors.h"

namespace mytorch {

// Holds the product of any two int64, and sums of a few such products.
__extension__ using Wide = __int128;

// Returns `value` as int64. Throws Error(kShape), with the name `what`, if it does not fit.
inline int64_t checked(Wide value, const char* op, const char* what) {
  const auto narrow = static_cast<int64_t>(value);
  if (narrow != value) [[unlikely]] {
    fail(ErrorCode::kShape, "[", op, "] ", what, " exceeds the range of int64");
  }
  return narrow;
}

// Returns a * b modulo 2^64, for strides of shapes that are not checked yet: the allocation of the
// tensor refuses those that overflow.
inline int64_t wrapping_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// The largest product of the sizes of a tensor, its zeros taken as ones: it fits int64 in bytes of
// any type. Kernels and strides rely on it, also for tensors without elements.
inline constexpr int64_t kMaxExtent = INT64_MAX / 16;

// Returns the number of elements of a shape without negative sizes. Throws Error(kShape) if no
// tensor can have that shape (see kMaxExtent).
inline int64_t checked_product(IntList sizes, const char* op) {
  int64_t n = 1;
  bool empty = false;
  bool overflow = false;
  for (const int64_t size : sizes) {
    empty = empty || size == 0;
    overflow = overflow || __builtin_mul_overflow(n, size == 0 ? 1 : size, &n);
  }
  if (overflow || n > kMaxExtent) [[unlikely]] {
    fail(ErrorCode::kShape, "[", op, "] shape ", shape_str(sizes), " has too many elements",
         empty ? ", were its zeros ones" : "");
  }
  return empty ? 0 : n;
}

}  // namespace mytorch
