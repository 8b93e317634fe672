// Iteration spaces of fused loops. Calls whose tensors have other shapes, such as (8, 10, 64) and
// (80, 64), or (80, 1) and (80), run over one space if these only split or join dimensions.
#pragma once

#include <optional>

#include "core/types/dims.h"
#include "mytorch/abi.h"

namespace mytorch::graph {

struct LoopSpace {
  Dims sizes;           // row-major, without ones
  int64_t columns = 0;  // the elements of a row, in the last dimensions; 0: the loop has no rows

  int64_t numel() const;
  int64_t rows() const { return columns == 0 ? numel() : numel() / columns; }
  // The number of last dimensions that are a row.
  int inner() const;
};

// Returns the space of a loop over a shape whose last `inner` dimensions are a row; 0: it has none.
LoopSpace space_of(const Dims& shape, int inner);

// Returns the space of two loops as one, or nothing if there is none: both have the same elements,
// or one has an element for each row of the other.
std::optional<LoopSpace> common_space(const LoopSpace& a, const LoopSpace& b);

// Returns the strides, one for each size of the space, of a tensor that has these over a shape: one
// of all elements, or of one for each row, whose strides in the row are 0. The space is one that
// common_space() made of that of the shape.
Dims strides_in(const LoopSpace& space, const Dims& shape, const Dims& strides);

}  // namespace mytorch::graph
