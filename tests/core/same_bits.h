// Comparison of tensors bit for bit, wherever they are.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "mytorch/mytorch.h"

namespace mytorch {

// Returns whether two tensors have the same type, shape and bits. Of a NaN, only that it is one.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.sizes() == b.sizes())) return false;
  const auto equal_bytes = [](const Tensor& x, const Tensor& y) {
    return std::memcmp(x.raw_data(), y.raw_data(), x.nbytes()) == 0;
  };
  const Tensor x = a.detach().contiguous().cpu(), y = b.detach().contiguous().cpu();
  if (equal_bytes(x, y)) return true;
  return x.is_floating_point() && equal(isnan(x), isnan(y)) &&
         equal_bytes(where(isnan(x), 0, x), where(isnan(y), 0, y));
}

// Expects the same bits, or that both are undefined.
inline void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.defined(), b.defined());
  if (!a.defined()) return;
  EXPECT_TRUE(same_bits(a, b)) << a << " and " << b;
}

}  // namespace mytorch
