// Comparisons of tensors with numbers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::testing {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns the elements in row-major order.
inline std::vector<double> values(const Tensor& tensor) {
  const Tensor flat = tensor.detach().to(kCPU).to(kFloat64).contiguous().view({-1});
  const double* data = flat.const_data<double>();
  return {data, data + flat.numel()};
}

inline void expect_values(const Tensor& tensor, const std::vector<double>& expected,
                          double tolerance = 1e-6) {
  const std::vector<double> found = values(tensor);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(found[i])) << "element " << i << " is " << found[i];
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(found[i], expected[i]) << "element " << i;
    } else {
      EXPECT_NEAR(found[i], expected[i], tolerance * (1 + std::abs(expected[i])))
          << "element " << i;
    }
  }
}

// Returns a tensor of the given sizes with values in row-major order.
inline Tensor filled(IntList sizes, const std::vector<double>& values,
                     ScalarType dtype = kFloat32) {
  return tensor(values, dtype).view(sizes);
}

}  // namespace mytorch::testing
