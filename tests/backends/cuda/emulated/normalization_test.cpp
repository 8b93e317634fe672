// Normalization of rows on the emulated device against the definition, in double.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "backends/cuda/registry.h"
#include "mytorch/abi_ops/native_group_norm.h"
#include "mytorch/abi_ops/native_layer_norm.h"
#include "mytorch/abi_ops/native_rms_norm.h"
#include "tests/backends/cuda/emulated/kernels.h"

namespace mytorch::testing {
namespace {

using Values = std::vector<double>;

// Rows of n numbers between -scale and scale.
TestTensor rows_of(int64_t rows, int64_t n, double scale) {
  Values values = uniform_numbers(rows * n, 5);
  for (double& each : values) each *= scale;
  return TestTensor::of<float>({rows, n}, values);
}

// Expects that each row of `out`, in the order of `x`, is normalized, and rstd with it.
void expect_normal(const TestTensor& x, const TestTensor& out, const TestTensor& rstd, int64_t n,
                   double eps, bool centered) {
  const Values from = x.values<double>(), to = out.values<double>(),
               inverse = rstd.values<double>();
  for (size_t row = 0; row < inverse.size(); ++row) {
    const auto size = static_cast<size_t>(n);
    const double* const values = from.data() + row * size;
    double mean = 0, square = 0;
    for (size_t i = 0; centered && i < size; ++i) mean += values[i] / static_cast<double>(n);
    for (size_t i = 0; i < size; ++i) {
      square += std::pow(values[i] - mean, 2) / static_cast<double>(n);
    }
    const double expected = 1 / std::sqrt(square + eps);
    EXPECT_NEAR(inverse[row] / expected, 1, 1e-5) << "row " << row;
    for (size_t i = 0; i < size; i += 7) {
      EXPECT_NEAR(to[row * size + i], (values[i] - mean) * expected, 1e-5) << "row " << row;
    }
  }
}

// Numbers whose squares float32 holds, and those whose squares it does not hold.
constexpr double kScales[] = {1, 1e25, 1e-25};

class EmulatedRows : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(, EmulatedRows, ::testing::Values(33, 64, 600, 4096));

TEST_P(EmulatedRows, LayerAndRootMeanSquareNorm) {
  const int64_t n = GetParam(), rows = 5;
  for (const double scale : kScales) {
    const double eps = scale < 1 ? 0 : 1e-5;
    const TestTensor x = rows_of(rows, n, scale);
    const TestTensor out = TestTensor::empty(sdk::dtype_of<float>, {rows, n});
    const TestTensor mean = TestTensor::empty(sdk::dtype_of<float>, {rows, 1});
    const TestTensor rstd = TestTensor::empty(sdk::dtype_of<float>, {rows, 1});
    const std::vector<int64_t> shape = {n};
    mt_args_native_layer_norm layer{};
    layer.input = x, layer.normalized_shape = list(shape), layer.eps = eps;
    layer.out = out, layer.mean = mean, layer.rstd = rstd;
    ASSERT_EQ(run(cuda::register_layer_norm, "native_layer_norm", layer, sdk::dtype_of<float>), "");
    expect_normal(x, out, rstd, n, eps, true);
    mt_args_native_rms_norm rms{};
    rms.input = x, rms.normalized_shape = list(shape), rms.eps = eps;
    rms.out = out, rms.rstd = rstd;
    ASSERT_EQ(run(cuda::register_layer_norm, "native_rms_norm", rms, sdk::dtype_of<float>), "");
    expect_normal(x, out, rstd, n, eps, false);
  }
}

// The statistics of channels-last groups are merged from pieces.
TEST(EmulatedGroups, OfShortAndOfSplitGroups) {
  for (const double scale : kScales) {
    for (const bool last : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "scale " << scale << (last ? ", channels last" : ""));
      const double eps = scale < 1 ? 0 : 1e-5;
      const TestTensor x = rows_of(4, 2 * 36, scale), y = rows_of(4, 2 * 36, 0);
      const TestTensor mean = TestTensor::empty(sdk::dtype_of<float>, {2, 2});
      const TestTensor rstd = TestTensor::empty(sdk::dtype_of<float>, {2, 2});
      // Two samples of two groups of two channels of 36 elements.
      const Shape shape = {2, 4, 36};
      const Shape strides = last ? Shape{144, 1, 4} : Shape{144, 36, 1};
      const TestTensor input = x.as_strided(shape, strides), out = y.as_strided(shape, strides);
      mt_args_native_group_norm args{};
      args.input = input, args.group = 2, args.eps = eps;
      args.out = out, args.mean = mean, args.rstd = rstd;
      ASSERT_EQ(run(cuda::register_group_norm, "native_group_norm", args, sdk::dtype_of<float>),
                "");
      expect_normal(input, out, rstd, 72, eps, true);
    }
  }
}

}  // namespace
}  // namespace mytorch::testing
