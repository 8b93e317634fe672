// What the operators that take index tensors share.
#pragma once

#include "mytorch/tensor.h"

namespace mytorch::indexing {

// A 1-dim (or one-element) index as an operand of gather and scatter: `shape`, constant outside of
// dimension `dim`.
Tensor along(const Tensor& index, int64_t dim, IntList shape);

// int64, with negative indices of a dimension of `size` counted from its end. What is out of range
// stays out of range, so that the kernel that uses it says so.
Tensor from_front(const Tensor& index, int64_t size);

}  // namespace mytorch::indexing
