// Comparison of tensors bit for bit, wherever they are.
#pragma once

#include <gtest/gtest.h>

#include "graph/run/same_bits.h"
#include "mytorch/mytorch.h"

namespace mytorch {

using graph::same_bits;

// Expects the same bits, or that both are undefined.
inline void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.defined(), b.defined());
  if (!a.defined()) return;
  EXPECT_TRUE(same_bits(a, b)) << a << " and " << b;
}

}  // namespace mytorch
