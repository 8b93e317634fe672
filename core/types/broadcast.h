// Broadcasting of shapes: counted from the last dimension, sizes must be equal or 1.
#pragma once

#include <string>

#include "core/types/dims.h"
#include "core/types/errors.h"

namespace mytorch {

// Extends `sizes` to the shape to which it and `other` broadcast, and returns 0. If they do not
// broadcast, returns a dimension in which they differ, from -1 (the last) downwards.
inline int64_t broadcast_into(Dims& sizes, IntList other) {
  if (other.size() > sizes.size()) sizes.insert(sizes.begin(), other.size() - sizes.size(), 1);
  const size_t lead = sizes.size() - other.size();
  for (size_t i = 0; i < other.size(); ++i) {
    int64_t& size = sizes[lead + i];
    if (other[i] == size || other[i] == 1) continue;
    if (size != 1) return static_cast<int64_t>(i) - static_cast<int64_t>(other.size());
    size = other[i];
  }
  return 0;
}

// Throws Error(kShape) for `shapes`, whose sizes a and b in dimension `dim` do not broadcast.
[[noreturn]] inline void fail_broadcast(const char* op, const std::string& shapes, int64_t a,
                                        int64_t b, int64_t dim) {
  fail(ErrorCode::kShape, "[", op, "] shapes ", shapes,
       " do not broadcast: counted from the last dimension, sizes must be equal or 1, and ", a,
       " meets ", b, " in dimension ", dim);
}

// Returns the shape to which both broadcast. Throws Error(kShape) if there is none.
inline Dims broadcast_shapes(IntList a, IntList b, const char* op) {
  Dims sizes = to_dims(a);
  const int64_t dim = broadcast_into(sizes, b);
  if (dim != 0) [[unlikely]] {
    fail_broadcast(op, absl::StrCat(shape_str(a), " and ", shape_str(b)), sizes[sizes.size() + dim],
                   b[b.size() + dim], dim);
  }
  return sizes;
}

// Returns whether `from` broadcasts to `to`.
inline bool broadcasts_to(IntList from, IntList to) {
  if (from.size() > to.size()) return false;
  const size_t lead = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1 && from[i] != to[lead + i]) return false;
  }
  return true;
}

}  // namespace mytorch
