// Helpers for operators with index tensors.
#pragma once

#include "mytorch/ops/empty.h"
#include "mytorch/tensor.h"

namespace mytorch::indexing {

// Returns the 1-dim index f(0), f(1), ..., f(n - 1) on a device. Throws Error(kOutOfMemory) if
// there is no memory for it.
template <class F>
Tensor index_of(int64_t n, Device device, F f) {
  const Tensor index = mytorch::empty({n}, kInt64);
  auto* values = index.data<int64_t>();
  for (int64_t i = 0; i < n; ++i) values[i] = f(i);
  return index.to(device);
}

// Returns a 1-dim (or one-element) index as an operand of gather and scatter: with shape `shape`,
// and constant except along dimension `dim`.
Tensor along(const Tensor& index, int64_t dim, IntList shape);

// Returns the index as int64, with negative indices of a dimension of `size` counted from its end.
// Indices out of range stay out of range, so that the kernel reports them.
Tensor from_front(const Tensor& index, int64_t size);

}  // namespace mytorch::indexing
