// Strides without gaps.
#pragma once

#include <algorithm>
#include <utility>

#include "core/types/checked.h"
#include "core/types/dims.h"

namespace mytorch {

// Returns the strides of a tensor without gaps whose dimensions are sorted as by ATen's
// TensorIterator::reorder_dimensions. `slower(a, b)` is 1 if dimension a varies more slowly than b,
// -1 for the opposite, 0 if their order is open.
template <class Slower>
Dims packed_strides(IntList sizes, Slower slower) {
  const int ndim = static_cast<int>(sizes.size());
  Dims order(ndim);  // fastest first
  for (int i = 0; i < ndim; ++i) order[i] = ndim - 1 - i;
  for (int i = 1; i < ndim; ++i) {
    int at = i;
    for (int before = i - 1; before >= 0; --before) {
      const int c = slower(order[before], order[at]);
      if (c > 0) {
        std::swap(order[before], order[at]);
        at = before;
      } else if (c < 0) {
        break;
      }
    }
  }
  Dims strides(ndim);
  int64_t stride = 1;
  for (const int64_t dim : order) {
    strides[dim] = stride;
    stride = wrapping_mul(stride, std::max<int64_t>(sizes[dim], 1));
  }
  return strides;
}

}  // namespace mytorch
