// Range checks of index values.
#pragma once

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

}  // namespace mytorch::cpu
