// The SDK's arithmetic on sizes, and the windows of convolution and pooling.
#include "mytorch/backend/windows.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/convolution.h"
#include "mytorch/abi_ops/convolution_backward_input.h"
#include "mytorch/abi_ops/convolution_backward_weight.h"
#include "mytorch/abi_ops/max_pool2d_with_indices.h"
#include "mytorch/backend.h"

namespace mytorch::testing {
namespace {

using sdk::Window;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

// ---- sizes ----

TEST(Sizes, CheckedArithmeticThrowsInsteadOfOverflowing) {
  EXPECT_EQ(sdk::checked_add(kMost, -1), kMost - 1);
  EXPECT_EQ(sdk::checked_mul(-(int64_t{1} << 31), int64_t{1} << 32), kLeast);
  EXPECT_THROW(sdk::checked_add(kMost, 1), sdk::Error);
  EXPECT_THROW(sdk::checked_add(kLeast, -1), sdk::Error);
  EXPECT_THROW(sdk::checked_mul(int64_t{1} << 32, int64_t{1} << 31), sdk::Error);
  EXPECT_THROW(sdk::checked_mul(kLeast, -1), sdk::Error);
}

TEST(Sizes, AnEmptyShapeHasNoElementsEvenIfItsOtherSizesOverflow) {
  const int64_t large = int64_t{1} << 40;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{0, large, large}, {large, 0, large}, {large, large, 0}}) {
    EXPECT_EQ(sdk::product(shape), 0);
    mt_tensor tensor{};
    std::vector<int64_t> sizes = shape, strides(3, 1);
    tensor.dl.ndim = 3;
    tensor.dl.shape = sizes.data();
    tensor.dl.strides = strides.data();
    EXPECT_EQ(sdk::TensorView(&tensor).numel(), 0);
    EXPECT_TRUE(sdk::TensorView(&tensor).is_contiguous());
    EXPECT_EQ(sdk::make_loop<1>(shape, {&tensor}).numel(), 0);
  }
}

TEST(Sizes, DivideUpRoundsTowardsInfinity) {
  EXPECT_EQ(sdk::divide_up(0, 3), 0);
  EXPECT_EQ(sdk::divide_up(6, 3), 2);
  EXPECT_EQ(sdk::divide_up(7, 3), 3);
  EXPECT_EQ(sdk::divide_up(-7, 3), -2);
  EXPECT_EQ(sdk::divide_up(kMost, 2), kMost / 2 + 1);
  EXPECT_EQ(sdk::divide_up(kMost, kMost), 1);
}

// ---- windows ----

// Calls f(window, input size, output size) for small windows.
template <class F>
void for_each_window(F&& f) {
  for (int64_t kernel = 1; kernel <= 3; ++kernel) {
    for (int64_t stride = 1; stride <= 3; ++stride) {
      for (int64_t padding = 0; padding <= 3; ++padding) {
        for (int64_t dilation = 1; dilation <= 3; ++dilation) {
          for (int64_t input = 1; input <= 7; ++input) {
            const Window w{kernel, stride, padding, dilation};
            const int64_t room = input + 2 * padding - (kernel - 1) * dilation - 1;
            if (room < 0) continue;
            SCOPED_TRACE("kernel " + std::to_string(kernel) + ", stride " + std::to_string(stride) +
                         ", padding " + std::to_string(padding) + ", dilation " +
                         std::to_string(dilation) + ", input " + std::to_string(input));
            f(w, input, room / stride + 1);
          }
        }
      }
    }
  }
}

TEST(Window, FirstAndEndEncloseTheTapsInsideTheInput) {
  for_each_window([](const Window& w, int64_t input, int64_t output) {
    for (int64_t x = 0; x < output; ++x) {
      std::vector<int64_t> expected, actual;
      for (int64_t k = 0; k < w.kernel; ++k) {
        if (w.place(x, k) >= 0 && w.place(x, k) < input) expected.push_back(w.place(x, k));
      }
      for (int64_t at = w.first(x); at < w.end(x, input); at += w.dilation) actual.push_back(at);
      EXPECT_EQ(actual, expected);
    }
  });
}

TEST(Window, ReachedAreTheWindowsWhoseTapReadsTheInput) {
  for_each_window([](const Window& w, int64_t input, int64_t output) {
    for (int64_t k = 0; k < w.kernel; ++k) {
      const sdk::IndexRange range = w.reached(k, input, output);
      for (int64_t x = 0; x < output; ++x) {
        const bool inside = w.place(x, k) >= 0 && w.place(x, k) < input;
        EXPECT_EQ(x >= range.first && x < range.last, inside) << "tap " << k << " of window " << x;
      }
    }
  });
}

TEST(Window, ContainingAreTheWindowsOfAPosition) {
  for_each_window([](const Window& w, int64_t input, int64_t output) {
    if (w.dilation != 1) return;
    for (int64_t at = 0; at < input; ++at) {
      const sdk::IndexRange range = w.containing(at, output);
      for (int64_t x = 0; x < output; ++x) {
        const bool contains = w.place(x, 0) <= at && at <= w.place(x, w.kernel - 1);
        EXPECT_EQ(x >= range.first && x < range.last, contains) << at << " in window " << x;
      }
    }
  });
}

TEST(Window, CountsThePaddingOnRequest) {
  const Window w{3, 2, 1, 1};
  EXPECT_EQ(w.count(0, 5, true), 3);
  EXPECT_EQ(w.count(0, 5, false), 2);
  EXPECT_EQ(w.count(1, 5, false), 3);
  // In ceil_mode, the last window ends beyond the padding.
  EXPECT_EQ(w.count(3, 6, true), 2);
  EXPECT_EQ(w.count(3, 6, false), 1);
}

TEST(Window, RefusesArgumentsOutOfRange) {
  for (const Window& w : {Window{0, 1, 0, 1}, Window{1, 0, 0, 1}, Window{1, 1, -1, 1},
                          Window{1, 1, 0, 0}, Window{kLeast, kLeast, kLeast, kLeast}}) {
    EXPECT_THROW(w.check(5, 1), sdk::Error);
  }
}

TEST(Window, RefusesPositionsBeyondInt64) {
  EXPECT_THROW((Window{2, kMost, 0, 1}.check(5, 3)), sdk::Error);
  EXPECT_THROW((Window{3, 1, 0, kMost}.check(5, 1)), sdk::Error);
  EXPECT_THROW((Window{kMost, 1, 0, kMost}.check(5, 1)), sdk::Error);
  EXPECT_THROW((Window{1, 1, kMost, 1}.check(5, 1)), sdk::Error);
}

TEST(Window, AcceptsTheLargestArguments) {
  const Window one{2, kMost, 0, 1};  // a single window
  one.check(5, 1);
  EXPECT_EQ(one.end(0, 5), 2);
  EXPECT_EQ(one.reached(1, 5, 1).last, 1);
  EXPECT_EQ(one.containing(1, 1).last, 1);
  EXPECT_EQ(one.containing(4, 1).first, 1);

  const int64_t far = int64_t{1} << 61;
  const Window apart{2, 1, far / 2, far};  // all padding
  apart.check(5, 5);
  EXPECT_EQ(apart.first(4), 4 + far / 2);
  EXPECT_EQ(apart.end(4, 5), 5);
  EXPECT_EQ(apart.reached(0, 5, 5).first, 5);
  EXPECT_EQ(apart.reached(1, 5, 5).last, 0);
}

// ---- arguments ----

mt_int_list list(const std::vector<int64_t>& values) {
  return {values.data(), static_cast<int64_t>(values.size())};
}

struct Shaped {
  explicit Shaped(std::vector<int64_t> sizes) : shape(std::move(sizes)), strides(shape.size()) {
    tensor.dl.ndim = static_cast<int32_t>(shape.size());
    tensor.dl.shape = shape.data();
    tensor.dl.strides = strides.data();
  }
  std::vector<int64_t> shape, strides;
  mt_tensor tensor{};
};

TEST(ConvolutionGeometry, MissingDimensionsComeFirst) {
  const Shaped input({2, 6, 9}), weight({8, 3, 4}), output({2, 8, 5});
  const std::vector<int64_t> stride = {2}, padding = {1}, dilation = {3};
  mt_args_convolution args{};
  args.groups = 2;
  args.stride = list(stride), args.padding = list(padding), args.dilation = list(dilation);
  const auto g = sdk::convolution_geometry(&input.tensor, &weight.tensor, &output.tensor, args);
  EXPECT_EQ(g.dims, 1);
  EXPECT_EQ(g.batch, 2);
  EXPECT_EQ(g.in_channels, 3);
  EXPECT_EQ(g.out_channels, 4);
  EXPECT_EQ(g.input, (sdk::Spatial{1, 1, 9}));
  EXPECT_EQ(g.output, (sdk::Spatial{1, 1, 5}));
  EXPECT_EQ(g.kernel, (sdk::Spatial{1, 1, 4}));
  EXPECT_EQ(g.stride, (sdk::Spatial{1, 1, 2}));
  EXPECT_EQ(g.padding, (sdk::Spatial{0, 0, 1}));
  EXPECT_EQ(g.dilation, (sdk::Spatial{1, 1, 3}));
  EXPECT_EQ(g.depth(), 12);
  EXPECT_FALSE(g.empty());
  EXPECT_FALSE(g.pointwise());
}

TEST(ConvolutionGeometry, RefusesAbsurdArguments) {
  const Shaped input({1, 1, 9}), weight({1, 1, 2}), output({1, 1, 5});
  const std::vector<int64_t> one = {1}, none = {0}, most = {kMost}, least = {kLeast};
  mt_args_convolution args{};
  const auto geometry = [&] {
    return sdk::convolution_geometry(&input.tensor, &weight.tensor, &output.tensor, args);
  };
  const auto reset = [&] {
    args.groups = 1;
    args.stride = list(one), args.padding = list(none), args.dilation = list(one);
  };
  reset();
  EXPECT_NO_THROW(geometry());
  for (mt_int_list mt_args_convolution::*field :
       {&mt_args_convolution::stride, &mt_args_convolution::padding,
        &mt_args_convolution::dilation}) {
    for (const auto& value : {most, least}) {
      reset();
      args.*field = list(value);
      EXPECT_THROW(geometry(), sdk::Error);
    }
  }
  reset();
  args.groups = 0;
  EXPECT_THROW(geometry(), sdk::Error);
}

TEST(Convolution, ATransposedOneExchangesInputAndOutput) {
  const Shaped small({1, 1, 4}), large({1, 1, 9}), weight({1, 1, 3});
  const std::vector<int64_t> two = {2}, none = {0}, one = {1};
  const auto with_arguments = [&](auto args, bool transposed) {
    args.groups = 1;
    args.stride = list(two), args.padding = list(none), args.dilation = list(one);
    args.transposed = transposed;
    return sdk::Convolution(args);
  };
  for (const bool transposed : {false, true}) {
    const mt_tensor* const given = transposed ? &small.tensor : &large.tensor;
    const mt_tensor* const computed = transposed ? &large.tensor : &small.tensor;
    mt_args_convolution forward{};
    forward.input = given, forward.weight = &weight.tensor, forward.out = computed;
    mt_args_convolution_backward_input input{};
    input.grad_output = computed, input.weight = &weight.tensor, input.out = given;
    mt_args_convolution_backward_weight of_weight{};
    of_weight.grad_output = computed, of_weight.input = given, of_weight.out = &weight.tensor;
    for (const sdk::Convolution& call :
         {with_arguments(forward, transposed), with_arguments(input, transposed),
          with_arguments(of_weight, transposed)}) {
      EXPECT_EQ(call.input.get(), &large.tensor);
      EXPECT_EQ(call.weight.get(), &weight.tensor);
      EXPECT_EQ(call.output.get(), &small.tensor);
    }
    EXPECT_EQ(with_arguments(forward, transposed).result().get(), computed);
    EXPECT_EQ(with_arguments(input, transposed).result().get(), given);
    EXPECT_EQ(with_arguments(of_weight, transposed).result().get(), &weight.tensor);
  }
}

TEST(PoolingWindows, OneNumberServesBothDimensionsAndTheStrideIsTheKernelByDefault) {
  const Shaped input({1, 8, 9}), pooled({1, 4, 4});
  const std::vector<int64_t> kernel = {2}, padding = {0, 1};
  mt_args_avg_pool2d args{};
  args.kernel_size = list(kernel), args.padding = list(padding);
  const auto [h, w] = sdk::pooling_windows(args, &input.tensor, &pooled.tensor);
  EXPECT_EQ(h.kernel, 2);
  EXPECT_EQ(w.kernel, 2);
  EXPECT_EQ(h.stride, 2);
  EXPECT_EQ(w.stride, 2);
  EXPECT_EQ(h.padding, 0);
  EXPECT_EQ(w.padding, 1);
  EXPECT_EQ(w.dilation, 1);
}

TEST(PoolingWindows, ReadTheDilationOfMaxPooling) {
  const Shaped input({1, 8, 9}), pooled({1, 4, 3});
  const std::vector<int64_t> kernel = {2, 3}, dilation = {3, 2};
  mt_args_max_pool2d_with_indices args{};
  args.kernel_size = list(kernel), args.dilation = list(dilation);
  const auto [h, w] = sdk::pooling_windows(args, &input.tensor, &pooled.tensor);
  EXPECT_EQ(h.dilation, 3);
  EXPECT_EQ(w.dilation, 2);
}

}  // namespace
}  // namespace mytorch::testing
