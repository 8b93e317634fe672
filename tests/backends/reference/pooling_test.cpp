// Pooling and its gradients.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/avg_pool2d_backward.h"
#include "mytorch/abi_ops/max_pool2d_with_indices.h"
#include "mytorch/abi_ops/max_pool2d_with_indices_backward.h"
#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {
namespace {

using V = std::vector<double>;
using I = std::vector<int64_t>;

struct MaxPool {
  V values;
  I indices;
};

template <class T>
MaxPool max_pool(Shape shape, const V& values, const I& kernel, const I& stride, const I& padding,
                 const I& dilation, Shape out_shape) {
  const TestTensor self = TestTensor::of<T>(std::move(shape), values);
  const TestTensor out = TestTensor::empty(self.dtype(), out_shape);
  const TestTensor indices = TestTensor::empty(sdk::dtype_of<int64_t>, out_shape);
  mt_args_max_pool2d_with_indices args{};
  args.self = self;
  args.kernel_size = list(kernel);
  args.stride = list(stride);
  args.padding = list(padding);
  args.dilation = list(dilation);
  args.out = out;
  args.indices = indices;
  EXPECT_EQ(run_op("max_pool2d_with_indices", args, self.dtype()), "");
  return {out.values<double>(), indices.values<int64_t>()};
}

TEST(MaxPoolTest, KnownValues) {
  //  1 2 3
  //  4 9 5
  //  9 0 7
  const V plane = {1, 2, 3, 4, 9, 5, 9, 0, 7};
  MaxPool got = max_pool<float>({1, 3, 3}, plane, {2, 2}, {1, 1}, {0, 0}, {1, 1}, {1, 2, 2});
  EXPECT_EQ(got.values, (V{9, 9, 9, 9}));
  EXPECT_EQ(got.indices, (I{4, 4, 4, 4}));  // the first of two equal ones
  // The stride defaults to the kernel size; ceil_mode adds partial windows.
  got = max_pool<float>({1, 3, 3}, plane, {2, 2}, {}, {0, 0}, {1, 1}, {1, 2, 2});
  EXPECT_EQ(got.values, (V{9, 5, 9, 7}));
  EXPECT_EQ(got.indices, (I{4, 5, 6, 8}));
  // Dilation, and padding, which is never the maximum.
  got = max_pool<int32_t>({1, 1, 3, 3}, {-1, -2, -3, -4, -9, -5, -9, -1, -7}, {2, 2}, {1, 1},
                          {1, 1}, {2, 2}, {1, 1, 3, 3});
  EXPECT_EQ(got.values, (V{-9, -4, -9, -1, -1, -1, -9, -4, -9}));
  EXPECT_EQ(got.indices, (I{4, 3, 4, 7, 0, 7, 4, 3, 4}));
}

TEST(MaxPoolTest, NaNIsTheMaximumAndMinusInfinityHasAnIndex) {
  const double inf = std::numeric_limits<double>::infinity();
  MaxPool got =
      max_pool<float>({1, 1, 4}, {1, NAN, 3, 2}, {1, 3}, {1, 1}, {0, 0}, {1, 1}, {1, 1, 2});
  EXPECT_TRUE(std::isnan(got.values[0]) && std::isnan(got.values[1]));
  EXPECT_EQ(got.indices, (I{1, 1}));
  got = max_pool<float>({1, 1, 2}, {-inf, -inf}, {1, 2}, {1, 2}, {0, 1}, {1, 1}, {1, 1, 2});
  EXPECT_EQ(got.values, (V{-inf, -inf}));
  EXPECT_EQ(got.indices, (I{0, 1}));
}

TEST(MaxPoolTest, BackwardAddsGradientsAtTheIndices) {
  const TestTensor grad = TestTensor::of<float>({1, 2, 1, 2}, {1, 2, 3, 4});
  const TestTensor indices = TestTensor::of<int64_t>({1, 2, 1, 2}, {1, 1, 0, 3});
  const TestTensor out = TestTensor::empty(grad.dtype(), {1, 2, 2, 2});
  mt_args_max_pool2d_with_indices_backward args{};
  args.grad_output = grad;
  args.indices = indices;
  args.out = out;
  ASSERT_EQ(run_op("max_pool2d_with_indices_backward", args, grad.dtype()), "");
  EXPECT_EQ(out.values<double>(), (V{0, 3, 0, 0, 3, 0, 0, 4}));
  const TestTensor wrong = TestTensor::of<int64_t>({1, 2, 1, 2}, {1, 1, 0, 4});
  args.indices = wrong;
  EXPECT_EQ(run_op("max_pool2d_with_indices_backward", args, grad.dtype()),
            "status " + std::to_string(MT_ERROR_VALUE) +
                ": [max_pool2d_with_indices_backward] index 4 is out of range for a plane of 4 "
                "elements");
}

struct Average {
  Shape in;
  Shape out;
  I kernel, stride, padding;
  int64_t count_include_pad = 1;
  mt_optional_int divisor{};
};

V avg_pool(const Average& a, const V& values) {
  const TestTensor self = TestTensor::of<double>(a.in, values);
  const TestTensor out = TestTensor::empty(self.dtype(), a.out);
  mt_args_avg_pool2d args{};
  args.self = self;
  args.kernel_size = list(a.kernel);
  args.stride = list(a.stride);
  args.padding = list(a.padding);
  args.count_include_pad = a.count_include_pad;
  args.divisor_override = a.divisor;
  args.out = out;
  EXPECT_EQ(run_op("avg_pool2d", args, self.dtype()), "");
  return out.values<double>();
}

TEST(AvgPoolTest, DividesByTheElementsOfTheWindow) {
  const V row = {2, 4, 6, 8, 10};
  // Padding 1, stride 2, kernel 3 over a row; the last window of ceil_mode extends beyond the
  // padding.
  Average a{{1, 1, 5}, {1, 1, 3}, {1, 3}, {1, 2}, {0, 1}};
  EXPECT_EQ(avg_pool(a, row), (V{2, 6, 6}));
  a.count_include_pad = 0;
  EXPECT_EQ(avg_pool(a, row), (V{3, 6, 9}));
  a.divisor = {2, 1};
  EXPECT_EQ(avg_pool(a, row), (V{3, 9, 9}));
  Average ceil{{1, 1, 5}, {1, 1, 3}, {1, 2}, {}, {0, 0}};
  EXPECT_EQ(avg_pool(ceil, row), (V{3, 7, 10}));
}

TEST(AvgPoolTest, BackwardIsTheAdjointOfForward) {
  const Average cases[] = {
      {{1, 2, 5, 4}, {1, 2, 3, 2}, {3, 2}, {2, 2}, {1, 0}},
      {{1, 2, 5, 4}, {1, 2, 3, 2}, {3, 2}, {2, 2}, {1, 0}, 0},
      {{2, 5, 4}, {2, 2, 4}, {2, 2}, {3, 1}, {0, 1}, 1, {5, 1}},
  };
  for (const Average& a : cases) {
    V grads;
    int64_t n = 1;
    for (const int64_t s : a.out) n *= s;
    for (int64_t i = 0; i < n; ++i) grads.push_back(static_cast<double>((i * 7 + 3) % 11) * 30);
    const TestTensor grad = TestTensor::of<double>(a.out, grads);
    const TestTensor out = TestTensor::empty(grad.dtype(), a.in);
    mt_args_avg_pool2d_backward args{};
    args.grad_output = grad;
    args.input_size = list(a.in);
    args.kernel_size = list(a.kernel);
    args.stride = list(a.stride);
    args.padding = list(a.padding);
    args.count_include_pad = a.count_include_pad;
    args.divisor_override = a.divisor;
    args.out = out;
    ASSERT_EQ(run_op("avg_pool2d_backward", args, grad.dtype()), "");
    const V got = out.values<double>();
    for (size_t i = 0; i < got.size(); ++i) {
      V unit(got.size(), 0.0);
      unit[i] = 1;
      const V forward = avg_pool(a, unit);
      double expected = 0;
      for (size_t j = 0; j < forward.size(); ++j) expected += forward[j] * grads[j];
      EXPECT_NEAR(got[i], expected, 1e-12) << "case " << &a - cases << " element " << i;
    }
  }
}

}  // namespace
}  // namespace mytorch::testing
