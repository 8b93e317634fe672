// The error of an index value beyond its dimension.
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

// One comparison: a negative index is a huge unsigned one.
inline bool in_range(int64_t value, int64_t size) {
  return static_cast<uint64_t>(value) < static_cast<uint64_t>(size);
}

}  // namespace mytorch::cpu
