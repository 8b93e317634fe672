// Convolutions and their gradients against the reference.
#include "mytorch/abi_ops/convolution.h"

#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/convolution_backward_input.h"
#include "mytorch/abi_ops/convolution_backward_weight.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {
namespace {

struct Case {
  std::string name;
  int64_t batch, groups, in_channels, out_channels;  // channels in a group
  Shape size, kernel, stride, padding, dilation;
};

std::string text(const Case& c) {
  std::string result = std::to_string(c.batch) + " samples, " + std::to_string(c.groups) +
                       " groups of " + std::to_string(c.in_channels) + " and " +
                       std::to_string(c.out_channels) + " channels";
  const auto add = [&](const char* name, const Shape& shape) {
    result += std::string(", ") + name;
    for (const int64_t size : shape) result += " " + std::to_string(size);
  };
  add("size", c.size);
  add("kernel", c.kernel);
  add("stride", c.stride);
  add("padding", c.padding);
  add("dilation", c.dilation);
  return result;
}

const Case kPadded = {"Padded3x3", 3, 1, 3, 5, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
const Case kStrided = {"Strided", 2, 1, 2, 4, {9, 8}, {3, 3}, {2, 3}, {1, 0}, {1, 2}};

// Of enough channels and tiles for Winograd's method (convolution/winograd.h): tiles beyond the
// edges, padding on one side, vectors that are not full, samples together, and boxes.
const Case kTiles[] = {
    {"Tiles", 3, 1, 20, 18, {13, 15}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"TilesInGroups", 2, 2, 16, 33, {14, 12}, {3, 3}, {1, 1}, {0, 1}, {1, 1}},
    {"TilesOfSmallSamples", 20, 1, 16, 16, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"TilesInSeveralBoxes", 1, 1, 17, 40, {37, 41}, {3, 3}, {1, 1}, {2, 1}, {1, 1}},
    {"TilesInSeveralColumns", 1, 1, 16, 16, {6, 400}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
};

constexpr int64_t kFar = int64_t{1} << 60;

const Case kCases[] = {
    {"ManyOutputChannelsOfOneInputChannel", 2, 1, 1, 16, {28, 28}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
    kPadded,
    {"PaddedAndDilated", 3, 1, 3, 8, {9, 11}, {3, 2}, {1, 1}, {2, 1}, {2, 3}},
    kStrided,
    {"Pointwise", 2, 1, 6, 9, {5, 5}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {"PointwiseStridedAndPadded", 2, 1, 6, 9, {5, 5}, {1, 1}, {2, 2}, {1, 1}, {1, 1}},
    {"Depthwise", 2, 4, 1, 1, {8, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"DepthwiseStridedWithMultiplier", 2, 3, 1, 2, {8, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {"GroupedPaddedBeyondTheKernel", 2, 2, 3, 4, {6, 6}, {3, 3}, {1, 1}, {3, 3}, {1, 1}},
    {"OneDimension", 5, 1, 4, 12, {17}, {5}, {1}, {2}, {1}},
    {"OneDimensionStridedAndDilated", 2, 1, 4, 3, {17}, {5}, {3}, {2}, {2}},
    {"ThreeDimensions", 2, 1, 2, 5, {5, 6, 7}, {2, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"ThreeDimensionsStridedAndDilated",
     1,
     1,
     2,
     3,
     {5, 6, 7},
     {2, 3, 3},
     {2, 1, 2},
     {1, 1, 1},
     {1, 2, 1}},
    {"Large5x5", 1, 1, 3, 4, {40, 40}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
    {"NoSamples", 0, 1, 3, 4, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"NoInputChannels", 2, 1, 0, 4, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"ManySmallSamples", 9, 1, 8, 10, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"SamplesInSeveralBoxes", 1, 1, 5, 17, {37, 41}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"InputChannelsInSeveralBlocks", 2, 1, 60, 9, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"OutputChannelsInSeveralPanels", 1, 1, 35, 40, {6, 5}, {3, 3}, {2, 1}, {1, 1}, {1, 1}},
    {"RowsInSeveralPieces", 1, 1, 2, 9, {1500}, {3}, {1}, {1}, {1}},
    {"DilatedRowsInSeveralPieces", 1, 1, 20, 9, {1500}, {3}, {1}, {0}, {2}},
    {"DepthwiseRowsInSeveralPieces", 1, 9, 1, 1, {33, 34}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"StridesBeyondTheInput", 2, 1, 9, 10, {6, 5}, {3, 3}, {INT64_MAX, 40}, {1, 1}, {1, 1}},
    {"TapsFarOutsideTheInput",
     2,
     1,
     9,
     10,
     {6, 5},
     {2, 2},
     {1, 1},
     {kFar / 2, kFar / 2},
     {kFar, kFar}},
};

struct Shapes {
  Shape input, output, weight;
};
Shapes shapes_of(const Case& c) {
  Shapes s{{c.batch, c.groups * c.in_channels},
           {c.batch, c.groups * c.out_channels},
           {c.groups * c.out_channels, c.in_channels}};
  for (size_t d = 0; d < c.size.size(); ++d) {
    const int64_t reach = c.dilation[d] * (c.kernel[d] - 1) + 1;
    s.input.push_back(c.size[d]);
    s.output.push_back((c.size[d] + 2 * c.padding[d] - reach) / c.stride[d] + 1);
    s.weight.push_back(c.kernel[d]);
  }
  return s;
}

template <class Args>
void set_window(Args& args, const Case& c, bool transposed) {
  static const std::vector<int64_t> none(3, 0);
  args.stride = list(c.stride);
  args.padding = list(c.padding);
  args.dilation = list(c.dilation);
  args.transposed = transposed;
  args.output_padding = {none.data(), static_cast<int64_t>(c.size.size())};
  args.groups = c.groups;
}

enum class What { kForward, kInput, kWeight };

struct Computation {
  std::string name;
  What what;
  bool transposed;
};
const Computation kComputations[] = {
    {"Forward", What::kForward, false},
    {"BackwardInput", What::kInput, false},
    {"BackwardWeight", What::kWeight, false},
    {"TransposedForward", What::kForward, true},
    {"TransposedBackwardInput", What::kInput, true},
    {"TransposedBackwardWeight", What::kWeight, true},
};

// Runs one of the computations with both backends, on the same inputs.
void compare(const Case& c, What what, bool transposed, mt_dtype dtype, Random& random,
             bool special = false) {
  const Shapes s = shapes_of(c);
  const Shape& input_shape = transposed ? s.output : s.input;
  const Shape& output_shape = transposed ? s.input : s.output;
  const TestTensor input = random.filled(dtype, input_shape, special);
  const TestTensor output = random.filled(dtype, output_shape);
  const TestTensor weight = random.filled(dtype, s.weight);
  const TestTensor bias = random.filled(dtype, {output_shape[1]});
  const Shape& result = what == What::kForward ? output_shape
                        : what == What::kInput ? input_shape
                                               : s.weight;
  const TestTensor expected = TestTensor::empty(dtype, result);
  const TestTensor actual = random.tensor(dtype, result);
  TestContext context(2);
  int status = -1;
  std::string error;
  const char* op = "convolution";
  const auto both = [&](auto& args) {
    set_window(args, c, transposed);
    args.header.compute = dtype;
    args.out = expected;
    error = run_op(op, args, dtype);
    args.out = actual;
    status = run_cpu(cpu::register_convolution, op, args, context);
  };
  if (what == What::kForward) {
    mt_args_convolution args{};
    args.input = input;
    args.weight = weight;
    if (random.below(2) == 0) args.bias = bias;
    both(args);
  } else if (what == What::kInput) {
    op = "convolution_backward_input";
    mt_args_convolution_backward_input args{};
    args.grad_output = output;
    args.weight = weight;
    args.input_size = list(input_shape);
    both(args);
  } else {
    op = "convolution_backward_weight";
    mt_args_convolution_backward_weight args{};
    args.grad_output = output;
    args.input = input;
    args.weight_size = list(s.weight);
    both(args);
  }
  ASSERT_EQ(error, "");
  ASSERT_EQ(status, MT_OK) << context.error;
  // Sums of up to 3000 products of numbers below 4, in a different order.
  expect_near(actual, expected, 8, 400,
              std::string(op) + (transposed ? " transposed, " : ", ") + text(c));
}

class ConvolutionCase : public ::testing::TestWithParam<std::tuple<Case, Computation>> {};

TEST_P(ConvolutionCase, AgreesWithTheReferenceInEveryDtype) {
  const auto& [c, computation] = GetParam();
  Random random(static_cast<uint32_t>(computation.what) * 2 + computation.transposed + 10);
  for (const mt_dtype dtype :
       {sdk::dtype_of<float>, sdk::dtype_of<double>, sdk::dtype_of<sdk::Half>,
        sdk::dtype_of<sdk::BFloat16>, sdk::dtype_of<int64_t>, sdk::dtype_of<uint8_t>,
        sdk::dtype_of<bool>}) {
    compare(c, computation.what, computation.transposed, dtype, random);
    if (HasFatalFailure()) return;
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Case, Computation>>& info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
}
INSTANTIATE_TEST_SUITE_P(, ConvolutionCase,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(kComputations)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Winograd, ConvolutionCase,
                         ::testing::Combine(::testing::ValuesIn(kTiles),
                                            ::testing::ValuesIn(kComputations)),
                         name_of);

// Any window on any input.
Case random_case(Random& random) {
  const auto from = [&](int64_t least, int64_t most) {
    return least + random.below(most + 1 - least);
  };
  for (;;) {
    const size_t dims = static_cast<size_t>(from(1, 3));
    Case c;
    c.batch = from(1, 3);
    c.groups = random.below(3) == 0 ? from(2, 3) : 1;
    c.in_channels = from(1, 24);
    c.out_channels = from(1, 36);
    double products = static_cast<double>(c.batch * c.groups * c.in_channels * c.out_channels);
    for (size_t d = 0; d < dims; ++d) {
      c.size.push_back(from(1, dims == 1 ? 60 : dims == 2 ? 20 : 7));
      c.kernel.push_back(from(1, 4));
      c.stride.push_back(from(1, 3));
      c.padding.push_back(from(0, 3));
      c.dilation.push_back(from(1, 3));
      const int64_t room = c.size[d] + 2 * c.padding[d] - c.dilation[d] * (c.kernel[d] - 1) - 1;
      products *= room < 0 ? 0 : static_cast<double>((room / c.stride[d] + 1) * c.kernel[d]);
    }
    if (products > 0 && products < 2e5) return c;
  }
}

// Each instruction set has its own tiles.
class ConvolutionTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(ConvolutionTarget, AnyWindowAgreesWithTheReference) {
  Random random(30);
  for (int i = 0; i < 80; ++i) {
    const Case c = random_case(random);
    for (const What what : {What::kForward, What::kInput, What::kWeight}) {
      const mt_dtype dtype = i % 2 == 0 ? sdk::dtype_of<float> : sdk::dtype_of<double>;
      compare(c, what, i % 4 >= 2, dtype, random);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ConvolutionTarget, TilesAgreeWithTheReference) {
  Random random(31);
  for (const Case& c : kTiles) {
    for (const What what : {What::kForward, What::kInput}) {
      for (const bool transposed : {false, true}) {
        compare(c, what, transposed, sdk::dtype_of<float>, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ConvolutionTarget,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST(Convolution, TheBitsDoNotDependOnTheNumberOfThreads) {
  Random random(40);
  for (const Case& c :
       {Case{"Winograd", 9, 1, 16, 32, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
        Case{"ImplicitGemm", 9, 1, 16, 32, {14, 14}, {5, 3}, {1, 1}, {1, 1}, {1, 1}},
        Case{"Direct", 9, 1, 1, 16, {28, 28}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
        Case{"Grouped", 2, 3, 20, 33, {9, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}}) {
    SCOPED_TRACE(c.name);
    const Shapes s = shapes_of(c);
    const TestTensor x = random.filled(sdk::dtype_of<float>, s.input);
    const TestTensor grad = random.filled(sdk::dtype_of<float>, s.output);
    const TestTensor weight = random.filled(sdk::dtype_of<float>, s.weight);
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 3, 7}) {
      const TestTensor forward = TestTensor::empty(sdk::dtype_of<float>, s.output);
      const TestTensor input = TestTensor::empty(sdk::dtype_of<float>, s.input);
      const TestTensor gradient = TestTensor::empty(sdk::dtype_of<float>, s.weight);
      TestContext context(threads);
      mt_args_convolution a{};
      set_window(a, c, false);
      a.input = x;
      a.weight = weight;
      a.out = forward;
      ASSERT_EQ(run_cpu(cpu::register_convolution, "convolution", a, context), MT_OK);
      mt_args_convolution_backward_input b{};
      set_window(b, c, false);
      b.grad_output = grad;
      b.weight = weight;
      b.input_size = list(s.input);
      b.out = input;
      ASSERT_EQ(run_cpu(cpu::register_convolution, "convolution_backward_input", b, context),
                MT_OK);
      mt_args_convolution_backward_weight w{};
      set_window(w, c, false);
      w.grad_output = grad;
      w.input = x;
      w.weight_size = list(s.weight);
      w.out = gradient;
      ASSERT_EQ(run_cpu(cpu::register_convolution, "convolution_backward_weight", w, context),
                MT_OK);
      std::vector<float> all = forward.values<float>();
      for (const TestTensor* more : {&input, &gradient}) {
        const std::vector<float> values = more->values<float>();
        all.insert(all.end(), values.begin(), values.end());
      }
      results.push_back(std::move(all));
    }
    for (const auto& result : results) EXPECT_EQ(result, results[0]) << text(c);
  }
}

// As in PyTorch, a convolution multiplies the zeros of its padding, and zero times infinity is NaN.
// A transposed convolution and the gradient of the input have no terms for padding.
TEST(Convolution, InfiniteWeightsTimesPaddingAreNanInTheOutputOnly) {
  for (const int64_t channels : {1, 4, 12, 16}) {
    const int64_t batch = channels == 16 ? 16 : 1;  // enough tiles for Winograd's method
    const Shape shape = {batch, channels, 4, 4};
    const TestTensor x = TestTensor::empty(sdk::dtype_of<float>, shape);
    const TestTensor weight = TestTensor::empty(sdk::dtype_of<float>, {channels, channels, 3, 3});
    std::fill_n(x.view().data<float>(), x.view().numel(), 1.0f);
    std::fill_n(weight.view().data<float>(), weight.view().numel(), 1.0f);
    const int64_t taps = 9;
    for (int64_t i = 0; i < channels * channels; ++i) {
      weight.view().data<float>()[i * taps] = INFINITY;
    }
    const Case c{"", batch, 1, channels, channels, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
    const TestTensor out = TestTensor::empty(sdk::dtype_of<float>, shape);
    TestContext context(1);
    mt_args_convolution a{};
    set_window(a, c, false);
    a.input = x;
    a.weight = weight;
    a.out = out;
    ASSERT_EQ(run_cpu(cpu::register_convolution, "convolution", a, context), MT_OK);
    const auto forward = out.values<float>();
    mt_args_convolution_backward_input b{};
    set_window(b, c, false);
    b.grad_output = x;
    b.weight = weight;
    b.input_size = list(shape);
    b.out = out;
    ASSERT_EQ(run_cpu(cpu::register_convolution, "convolution_backward_input", b, context), MT_OK);
    const auto input = out.values<float>();
    for (size_t i = 0; i < forward.size(); ++i) {
      const size_t y = i / 4 % 4, x_ = i % 4;
      // The first tap is infinite and reads the padding above and to the left.
      EXPECT_EQ(std::isnan(forward[i]), y == 0 || x_ == 0) << i;
      EXPECT_FALSE(std::isnan(input[i])) << i;
      // All input elements except the last row and column contribute to it.
      EXPECT_EQ(std::isinf(input[i]), y < 3 && x_ < 3) << i;
    }
  }
}

TEST(Convolution, InfinityAndNanReachExactlyTheirSums) {
  Random random(20);
  for (const What what : {What::kForward, What::kWeight}) {
    compare(kPadded, what, false, sdk::dtype_of<float>, random, true);
    compare(kStrided, what, false, sdk::dtype_of<double>, random, true);
    for (const Case& c : kTiles) {
      for (const bool transposed : {false, true}) {
        compare(c, what, transposed, sdk::dtype_of<float>, random, true);
      }
    }
  }
}

// Sums of four such numbers overflow; the convolution, which picks one of them, does not.
TEST(Convolution, TheLargestNumbersDoNotOverflow) {
  for (const Case& c : kTiles) {
    const Shapes s = shapes_of(c);
    const TestTensor x = TestTensor::empty(sdk::dtype_of<float>, s.input);
    const TestTensor weight = TestTensor::empty(sdk::dtype_of<float>, s.weight);
    const TestTensor out = TestTensor::empty(sdk::dtype_of<float>, s.output);
    float* const values = x.view().data<float>();
    for (int64_t i = 0; i < x.view().numel(); ++i) values[i] = i % 3 == 0 ? -3e38f : 3e38f;
    std::fill_n(weight.view().data<float>(), weight.view().numel(), 0.0f);
    for (int64_t o = 0; o < s.weight[0]; ++o) {  // the middle of the first channel
      weight.view().data<float>()[o * c.in_channels * 9 + 4] = 1;
    }
    TestContext context(2);
    mt_args_convolution a{};
    set_window(a, c, false);
    a.input = x, a.weight = weight, a.out = out;
    ASSERT_EQ(run_cpu(cpu::register_convolution, "convolution", a, context), MT_OK);
    int64_t largest = 0;
    for (const float value : out.values<float>()) {
      ASSERT_TRUE(value == 0 || std::abs(value) == 3e38f) << value << ", " << text(c);
      largest += value != 0 ? 1 : 0;
    }
    EXPECT_GT(largest, 0) << text(c);
  }
}

}  // namespace
}  // namespace mytorch::testing
