// Arithmetic on shapes and strides.
#pragma once

#include <optional>

#include "core/types/broadcast.h"
#include "ops/spec.h"

namespace mytorch::geometry {

// Returns `shape` with its -1, if any, replaced so that it has `numel` elements. Throws
// Error(kShape).
Dims infer_shape(IntList shape, int64_t numel, const char* op);

// Returns the strides that view memory of `sizes` and `strides` in the shape `to`, which has the
// same number of elements, or nothing if that requires a copy.
std::optional<Dims> view_strides(IntList sizes, IntList strides, IntList to);

// Returns `dims` wrapped to 0 ... ndim - 1. Throws Error(kShape) if one is out of range or appears
// twice.
Dims wrap_dims(IntList dims, int64_t ndim, const char* op);

// Returns the sizes of all but the last `n` dimensions.
inline Dims leading_sizes(const Tensor& x, int64_t n) {
  return Dims(x.sizes().begin(), x.sizes().end() - n);
}

// Returns the shape with `size` in dimension `dim`.
inline Dims with_size(IntList shape, int64_t dim, int64_t size) {
  Dims sizes = to_dims(shape);
  sizes[dim] = size;
  return sizes;
}

// Returns the shape with dimensions from `first` up to `last` replaced by others.
inline Dims with_dims(IntList shape, int64_t first, int64_t last, IntList others) {
  Dims sizes(shape.begin(), shape.begin() + first);
  for (const int64_t size : others) sizes.push_back(size);
  for (size_t d = static_cast<size_t>(last); d < shape.size(); ++d) sizes.push_back(shape[d]);
  return sizes;
}

// Returns 0 ... ndim - 1 without `dim`.
inline Dims all_dims_but(int64_t dim, int64_t ndim) {
  Dims dims;
  for (int64_t d = 0; d < ndim; ++d) {
    if (d != dim) dims.push_back(d);
  }
  return dims;
}

// Expands a list argument with one value or `n` values to `n` spatial dimensions. Throws
// Error(kShape).
Dims for_each_dim(IntList list, int64_t n, const char* op, const char* name);

}  // namespace mytorch::geometry
