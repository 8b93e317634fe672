// Terms of the gradients of factorizations.
#pragma once

#include <cstdint>

#include "mytorch/ops/eye.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/tensor.h"

namespace mytorch::factorization {

inline Tensor product_of(const Tensor& a, const Tensor& b) { return mytorch::matmul(a, b); }

inline Tensor unit_of(const Tensor& like, int64_t n) {
  return mytorch::eye(n, like.dtype(), like.device());
}

// Adds two tensors, each of which may be undefined.
inline Tensor sum_of(const Tensor& a, const Tensor& b) {
  return !a.defined() ? b : !b.defined() ? a : a + b;
}

}  // namespace mytorch::factorization
