// Arithmetic on shapes and strides that several families share.
#pragma once

#include <optional>

#include "ops/spec.h"

namespace mytorch::geometry {

// `shape` with its -1, if any, replaced so that it has `numel` elements. Throws Error(kShape).
Dims infer_shape(IntList shape, int64_t numel, const char* op);

// The strides with which memory of `sizes` and `strides` has the shape `to` (of as many elements);
// nothing where that takes a copy.
std::optional<Dims> view_strides(IntList sizes, IntList strides, IntList to);

// The shape to which both broadcast. Throws Error(kShape).
Dims broadcast_shapes(IntList a, IntList b, const char* op);

// Each of `dims` from 0 to ndim - 1; an error where one appears twice.
Dims wrap_dims(IntList dims, int64_t ndim, const char* op);

// A list argument for `n` spatial dimensions: of n integers, or of one that stands for all.
Dims for_each_dim(IntList list, int64_t n, const char* op, const char* name);

int64_t product(IntList sizes);

}  // namespace mytorch::geometry
