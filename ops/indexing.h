// Helpers for operators with index tensors.
#pragma once

#include "mytorch/tensor.h"

namespace mytorch::indexing {

// Returns a 1-dim (or one-element) index as an operand of gather and scatter: with shape `shape`,
// and constant except along dimension `dim`.
Tensor along(const Tensor& index, int64_t dim, IntList shape);

// Returns the index as int64, with negative indices of a dimension of `size` counted from its end.
// Indices out of range stay out of range, so that the kernel reports them.
Tensor from_front(const Tensor& index, int64_t size);

}  // namespace mytorch::indexing
