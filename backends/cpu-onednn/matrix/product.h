// Descriptors of the operands of matrix products.
#pragma once

#include <utility>

#include "backends/cpu-onednn/engine/operand.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {

// Returns the reason why this is not a matrix (or a batch of matrices) with contiguous rows or
// columns; NULL if it is.
inline const char* matrix_reason(const sdk::TensorView& t) {
  if (const char* reason = product_type_reason(t.dtype())) return reason;
  if (const char* reason = size_reason(t)) return reason;
  const int64_t rows = t.size(-2), columns = t.size(-1);
  const bool by_rows =
      (columns == 1 || t.stride(-1) == 1) && (rows == 1 || t.stride(-2) >= columns);
  const bool by_columns =
      (rows == 1 || t.stride(-2) == 1) && (columns == 1 || t.stride(-1) >= rows);
  if (!by_rows && !by_columns) return "a matrix has neither contiguous rows nor contiguous columns";
  if (t.ndim() == 3 && t.size(0) != 1 && t.stride(0) < rows * columns) {
    return "the matrices of a batch overlap";
  }
  return nullptr;
}

// Returns the layout of a matrix or a batch of matrices, or of the transposed matrices. Dimensions
// of size 1 get strides that make it unambiguous which dimension is contiguous.
inline Desc describe_matrix(const sdk::TensorView& t, bool transposed = false) {
  Dims shape = shape_of(t);
  Dims strides(t.strides().begin(), t.strides().end());
  const size_t row = shape.size() - 2, column = shape.size() - 1;
  if (shape.size() == 3 && shape[0] == 1) strides[0] = shape[1] * shape[2];
  if (shape[column] == 1) strides[column] = 1;
  if (shape[row] == 1) strides[row] = strides[column] == 1 ? shape[column] : 1;
  if (transposed) {
    std::swap(shape[row], shape[column]);
    std::swap(strides[row], strides[column]);
  }
  return describe(t.dtype(), shape, strides);
}

}  // namespace mytorch::onednn
