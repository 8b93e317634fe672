// Range checks of index values.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "mytorch/backend.h"

namespace mytorch::cpu {

[[noreturn]] inline void fail_index(const char* op, int64_t value, int64_t dim, int64_t size) {
  throw sdk::Error(MT_ERROR_VALUE, "[" + std::string(op) + "] index " + std::to_string(value) +
                                       " is out of range for dimension " + std::to_string(dim) +
                                       " of size " + std::to_string(size));
}

// Whether low <= value < high, in one comparison: smaller values are huge as unsigned numbers.
inline bool in_range(int64_t value, int64_t low, int64_t high) {
  return static_cast<uint64_t>(value) - static_cast<uint64_t>(low) <
         static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
}
inline bool in_range(int64_t value, int64_t size) { return in_range(value, 0, size); }

// Throws for the first of n indices, `step` apart, that is not in [0, size).
inline void check_indices(mt_ctx& ctx, const char* op, const int64_t* index, int64_t step,
                          int64_t n, int64_t dim, int64_t size) {
  std::atomic<int64_t> first_wrong{n};
  sdk::parallel_for(ctx, 0, n, 32768, [&](int64_t begin, int64_t end) noexcept {
    int64_t i = begin;
    while (i < end && in_range(index[i * step], size)) ++i;
    if (i == end) return;
    int64_t known = first_wrong.load();
    while (i < known && !first_wrong.compare_exchange_weak(known, i)) continue;
  });
  if (first_wrong < n) fail_index(op, index[first_wrong * step], dim, size);
}

}  // namespace mytorch::cpu
