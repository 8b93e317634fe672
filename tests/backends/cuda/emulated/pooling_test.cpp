// The gradient of max pooling on the emulated device against additions in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backends/cuda/pooling/max_gradient.h"
#include "backends/cuda/runtime/faults.h"
#include "mytorch/abi_ops/max_pool2d_with_indices_backward.h"
#include "tests/backends/cuda/emulated/kernels.h"

namespace mytorch::testing {
namespace {

constexpr int64_t kN = 2, kC = 35, kH = 17, kW = 19;  // more planes and elements than a warp takes

Shape strides_of(bool last, int64_t h, int64_t w) {
  return last ? Shape{kC * h * w, 1, w * kC, kC} : Shape{kC * h * w, h * w, w, 1};
}

class EmulatedMaxPoolGradient : public ::testing::TestWithParam<bool> {
 protected:
  // Expects the gradients of planes of oh x ow windows, whose elements have the index
  // index(plane, window).
  template <class T>
  void expect_sums(int64_t oh, int64_t ow,
                   const std::function<int64_t(int64_t plane, int64_t window)>& index) {
    const bool last = GetParam();
    const int64_t windows = oh * ow, planes = kN * kC;
    const Shape shape = {kN, kC, oh, ow};
    const TestTensor grad_memory =
        TestTensor::of<T>({planes * windows}, uniform_numbers(planes * windows, 3));
    const TestTensor index_memory = TestTensor::empty(sdk::dtype_of<int64_t>, {planes * windows});
    const TestTensor out_memory = TestTensor::empty(sdk::dtype_of<T>, {planes * kH * kW});
    const TestTensor grad = grad_memory.as_strided(shape, strides_of(last && oh != 20, oh, ow));
    const TestTensor indices = index_memory.as_strided(shape, strides_of(last, oh, ow));
    const TestTensor out = out_memory.as_strided({kN, kC, kH, kW}, strides_of(last, kH, kW));
    const auto offset = [&](const TestTensor& x, int64_t plane, int64_t element) {
      const sdk::TensorView v = x.view();
      const int64_t w = v.size(3);
      return plane / kC * v.stride(0) + plane % kC * v.stride(1) + element / w * v.stride(2) +
             element % w * v.stride(3);
    };
    std::vector<float> expected(static_cast<size_t>(planes * kH * kW), 0);
    for (int64_t plane = 0; plane < planes; ++plane) {
      for (int64_t k = 0; k < windows; ++k) {
        const int64_t at = index(plane, k);
        indices.view().data<int64_t>()[offset(indices, plane, k)] = at;
        expected[static_cast<size_t>(plane * kH * kW + at)] +=
            sdk::convert<float>(grad.view().data<T>()[offset(grad, plane, k)]);
      }
    }
    mt_args_max_pool2d_with_indices_backward args{};
    const std::vector<int64_t> sizes = {kN, kC, kH, kW};
    args.grad_output = grad, args.indices = indices, args.input_size = list(sizes), args.out = out;
    ASSERT_EQ(run(cuda::register_max_pool_gradient, "max_pool2d_with_indices_backward", args,
                  sdk::dtype_of<T>),
              "");
    for (int64_t plane = 0; plane < planes; ++plane) {
      for (int64_t at = 0; at < kH * kW; ++at) {
        const T sum = sdk::convert<T>(expected[static_cast<size_t>(plane * kH * kW + at)]);
        ASSERT_EQ(sdk::convert<float>(out.view().data<T>()[offset(out, plane, at)]),
                  sdk::convert<float>(sum))
            << "plane " << plane << ", element " << at;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(, EmulatedMaxPoolGradient, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "ChannelsLast" : "Contiguous");
});

// Windows of 3 x 3 with stride 2 and padding 1, of which several may have one largest element.
int64_t of_windows(int64_t plane, int64_t window) {
  const int64_t y = window / 10 * 2 - 1 + (plane + window) % 3;
  const int64_t x = window % 10 * 2 - 1 + (plane * 3 + window / 2) % 3;
  const auto clamped = [](int64_t at, int64_t size) {
    return std::clamp(at, int64_t{0}, size - 1);
  };
  return clamped(y, kH) * kW + clamped(x, kW);
}

TEST_P(EmulatedMaxPoolGradient, OfWindows) {
  expect_sums<float>(9, 10, of_windows);
  expect_sums<sdk::BFloat16>(9, 10, of_windows);
}

TEST_P(EmulatedMaxPoolGradient, OfAnyIndices) {
  expect_sums<float>(3, 30,
                     [](int64_t plane, int64_t k) { return (plane * 7 + k * 101) % (kH * kW); });
  expect_sums<float>(1, 50, [](int64_t, int64_t) { return kH * kW - 1; });
  expect_sums<float>(2, 1, [](int64_t plane, int64_t k) { return plane % 2 == k ? 0 : 322; });
  // More runs than a warp looks at together.
  expect_sums<float>(20, 30, [](int64_t plane, int64_t k) { return (plane + k * 37) % (kH * kW); });
}

TEST_P(EmulatedMaxPoolGradient, OfNoWindows) { expect_sums<float>(0, 4, of_windows); }

TEST_P(EmulatedMaxPoolGradient, RecordsAnIndexOutOfRange) {
  for (const int64_t wrong : {int64_t{-1}, kH * kW}) {
    const TestTensor grad = TestTensor::of<float>({1, 1, 1, 2}, std::vector<double>{1, 2});
    const TestTensor indices =
        TestTensor::of<int64_t, int64_t>({1, 1, 1, 2}, std::vector<int64_t>{5, wrong});
    const TestTensor out = TestTensor::empty(sdk::dtype_of<float>, {1, 1, kH, kW});
    mt_args_max_pool2d_with_indices_backward args{};
    const std::vector<int64_t> sizes = {1, 1, kH, kW};
    args.grad_output = grad, args.indices = indices, args.input_size = list(sizes), args.out = out;
    TestContext context;
    cuda::Fault& fault = *cuda::fault_of(*context.get());
    fault = {};
    ASSERT_EQ(run(cuda::register_max_pool_gradient, "max_pool2d_with_indices_backward", args,
                  sdk::dtype_of<float>),
              "");
    EXPECT_NE(fault.site, 0u);
    EXPECT_EQ(fault.index, wrong);
    EXPECT_EQ(fault.size, kH * kW);
    EXPECT_EQ(fault.dim, 2u);
    fault = {};
    EXPECT_EQ(out.values<float>()[5], 1.0f);
  }
}

}  // namespace
}  // namespace mytorch::testing
