// Arithmetic on shapes and strides.
#pragma once

#include <optional>

#include "ops/spec.h"

namespace mytorch::geometry {

// Returns `shape` with its -1, if any, replaced so that it has `numel` elements. Throws
// Error(kShape).
Dims infer_shape(IntList shape, int64_t numel, const char* op);

// Returns the strides that view memory of `sizes` and `strides` in the shape `to`, which has the
// same number of elements, or nothing if that requires a copy.
std::optional<Dims> view_strides(IntList sizes, IntList strides, IntList to);

// Returns the shape to which both broadcast. Throws Error(kShape) if there is none.
Dims broadcast_shapes(IntList a, IntList b, const char* op);

// Returns `dims` wrapped to 0 ... ndim - 1. Throws Error(kShape) if one is out of range or appears
// twice.
Dims wrap_dims(IntList dims, int64_t ndim, const char* op);

// Expands a list argument with one value or `n` values to `n` spatial dimensions. Throws
// Error(kShape).
Dims for_each_dim(IntList list, int64_t n, const char* op, const char* name);

int64_t product(IntList sizes);

}  // namespace mytorch::geometry
