// Pooling against the reference, with infinities and NaNs among the elements.
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/avg_pool2d_backward.h"
#include "mytorch/abi_ops/max_pool2d_with_indices.h"
#include "mytorch/abi_ops/max_pool2d_with_indices_backward.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {
namespace {

struct Side {
  int64_t size, kernel, stride, padding, dilation, out;
};
Side side(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation = 1) {
  const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
  return {size, kernel, stride, padding, dilation, room / stride + 1};
}

template <class Args>
void set(Args& args, const Side& h, const Side& w, std::vector<Shape>& keep) {
  keep = {{h.kernel, w.kernel}, {h.stride, w.stride}, {h.padding, w.padding}};
  args.kernel_size = list(keep[0]), args.stride = list(keep[1]), args.padding = list(keep[2]);
}

void check_maxima(const Side& h, const Side& w, mt_dtype dtype, bool lowest, Random& random) {
  const TestTensor x = TestTensor::empty(dtype, {2, h.size, w.size});
  random.fill(x, true);
  if (lowest) {
    float* data = x.view().data<float>();
    std::fill(data, data + x.view().numel(), -std::numeric_limits<float>::infinity());
  }
  mt_args_max_pool2d_with_indices args{};
  std::vector<Shape> keep;
  set(args, h, w, keep);
  const Shape dilation = {h.dilation, w.dilation}, shape = {2, h.out, w.out};
  args.dilation = list(dilation);
  args.self = x, args.header.compute = dtype;
  const TestTensor best = TestTensor::empty(dtype, shape), own = TestTensor::empty(dtype, shape);
  const TestTensor at = TestTensor::empty(sdk::dtype_of<int64_t>, shape);
  const TestTensor own_at = TestTensor::empty(sdk::dtype_of<int64_t>, shape);
  args.out = best, args.indices = at;
  ASSERT_EQ(run_op("max_pool2d_with_indices", args, dtype), "");
  args.out = own, args.indices = own_at;
  TestContext context(2);
  ASSERT_EQ(run_cpu(cpu::register_pooling, "max_pool2d_with_indices", args, context), MT_OK);
  expect_near(own, best, 0, 1, "max_pool2d");
  ASSERT_EQ(own_at.values<int64_t>(), at.values<int64_t>()) << h.size << " x " << w.size;
}

void check_means(const Side& h, const Side& w, mt_dtype dtype, bool special, Random& random) {
  for (const bool padding_counts : {false, true}) {
    const Shape in = {2, h.size, w.size}, out = {2, h.out, w.out};
    for (const bool gradient : {false, true}) {
      const TestTensor from = TestTensor::empty(dtype, gradient ? out : in);
      random.fill(from, special);
      const TestTensor expected = TestTensor::empty(dtype, gradient ? in : out);
      const TestTensor actual = TestTensor::empty(dtype, gradient ? in : out);
      std::vector<Shape> keep;
      TestContext context(2);
      const auto run = [&](auto& args, const char* op) {
        set(args, h, w, keep);
        args.count_include_pad = padding_counts;
        args.out = expected;
        ASSERT_EQ(run_op(op, args, dtype), "");
        args.out = actual;
        ASSERT_EQ(run_cpu(cpu::register_pooling, op, args, context), MT_OK) << context.error;
        expect_near(actual, expected, 8, 2, op);
      };
      if (gradient) {
        mt_args_avg_pool2d_backward args{};
        args.grad_output = from, args.input_size = list(in);
        run(args, "avg_pool2d_backward");
      } else {
        mt_args_avg_pool2d args{};
        args.self = from;
        run(args, "avg_pool2d");
      }
    }
  }
}

TEST(PoolingWindows, RowsOfAnyWidthAndStrideAgreeWithTheReference) {
  Random random(1);
  for (int64_t width = 3; width <= 40; ++width) {
    for (int64_t stride = 1; stride <= 3; ++stride) {
      const Side h = side(7, 3, 2, 1), w = side(width, 3, stride, 1);
      check_maxima(h, w, sdk::dtype_of<float>, false, random);
      check_means(h, w, sdk::dtype_of<float>, true, random);
    }
  }
}

const Side kSides[] = {
    side(1, 1, 1, 0),  side(5, 1, 3, 0),         side(9, 2, 1, 1),    side(12, 5, 1, 2),
    side(20, 4, 3, 2), side(33, 13, 1, 6),       side(56, 56, 56, 0), side(60, 30, 15, 3),
    side(70, 7, 9, 0), side(6, 4, INT64_MAX, 2),
};
const Side kDilatedSides[] = {side(17, 3, 2, 1, 2), side(14, 2, 5, 1, 4), side(1, 2, 1, 1, 2)};

std::string name(const Side& s) {
  return "Size" + std::to_string(s.size) + "Kernel" + std::to_string(s.kernel) + "Stride" +
         std::to_string(s.stride) + "Padding" + std::to_string(s.padding) + "Dilation" +
         std::to_string(s.dilation);
}

// Windows that combine two sides, one for each dimension.
using Sides = std::tuple<Side, Side>;
const auto name_of_sides = [](const ::testing::TestParamInfo<Sides>& info) {
  return name(std::get<0>(info.param)) + "_" + name(std::get<1>(info.param));
};

class MaxPoolWindow : public ::testing::TestWithParam<Sides> {};
INSTANTIATE_TEST_SUITE_P(Undilated, MaxPoolWindow,
                         ::testing::Combine(::testing::ValuesIn(kSides),
                                            ::testing::ValuesIn(kSides)),
                         name_of_sides);
INSTANTIATE_TEST_SUITE_P(RowsDilated, MaxPoolWindow,
                         ::testing::Combine(::testing::ValuesIn(kDilatedSides),
                                            ::testing::ValuesIn(kSides)),
                         name_of_sides);
INSTANTIATE_TEST_SUITE_P(ColumnsDilated, MaxPoolWindow,
                         ::testing::Combine(::testing::ValuesIn(kSides),
                                            ::testing::ValuesIn(kDilatedSides)),
                         name_of_sides);
INSTANTIATE_TEST_SUITE_P(Dilated, MaxPoolWindow,
                         ::testing::Combine(::testing::ValuesIn(kDilatedSides),
                                            ::testing::ValuesIn(kDilatedSides)),
                         name_of_sides);

TEST_P(MaxPoolWindow, AgreesWithTheReferenceInEveryDtype) {
  const auto& [h, w] = GetParam();
  Random random(2);
  for (const mt_dtype dtype : {sdk::dtype_of<float>, sdk::dtype_of<double>,
                               sdk::dtype_of<sdk::BFloat16>, sdk::dtype_of<uint8_t>}) {
    check_maxima(h, w, dtype, false, random);
  }
}

TEST_P(MaxPoolWindow, MaximaOfMinusInfinityHaveTheIndexOfTheFirstElement) {
  const auto& [h, w] = GetParam();
  Random random(2);
  check_maxima(h, w, sdk::dtype_of<float>, true, random);
}

class AvgPoolWindow : public ::testing::TestWithParam<Sides> {};
INSTANTIATE_TEST_SUITE_P(, AvgPoolWindow,
                         ::testing::Combine(::testing::ValuesIn(kSides),
                                            ::testing::ValuesIn(kSides)),
                         name_of_sides);

TEST_P(AvgPoolWindow, MeansAndTheirGradientsAgreeWithTheReference) {
  const auto& [h, w] = GetParam();
  Random random(2);
  for (const mt_dtype dtype :
       {sdk::dtype_of<float>, sdk::dtype_of<double>, sdk::dtype_of<sdk::BFloat16>}) {
    check_means(h, w, dtype, false, random);
    check_means(h, w, dtype, true, random);
  }
}

// ---- every dtype, in several layouts

struct Pool {
  const char* name;
  Shape self, kernel, stride, padding, dilation, out;
};
const Pool kPools[] = {
    {"halves", {2, 3, 8, 8}, {2}, {}, {0}, {1}, {2, 3, 4, 4}},
    {"halves_of_planes", {3, 28, 28}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {3, 14, 14}},
    {"same_size", {2, 2, 9, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {2, 2, 9, 40}},
    {"overlapping", {1, 2, 7, 7}, {3, 3}, {2, 2}, {0, 0}, {1, 1}, {1, 2, 3, 3}},
    {"beyond_the_end", {1, 1, 5, 5}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {1, 1, 3, 3}},  // ceil_mode
    {"empty", {0, 2, 5, 5}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {0, 2, 2, 2}},
};
const Pool kDilatedPool = {"dilated", {2, 2, 9, 40}, {3, 2}, {2, 3}, {1, 1}, {2, 1}, {2, 2, 4, 14}};

using PoolCase = std::tuple<Pool, mt_dtype>;
const auto name_of_pool = [](const ::testing::TestParamInfo<PoolCase>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + sdk::dtype_name(std::get<1>(info.param));
};

class MaxPool : public ::testing::TestWithParam<PoolCase> {
 protected:
  MaxPool() {
    args.self = self;
    args.kernel_size = list(p.kernel), args.stride = list(p.stride);
    args.padding = list(p.padding), args.dilation = list(p.dilation);
    args.header.compute = dtype;
    args.out = best, args.indices = places;
    EXPECT_EQ(run_op("max_pool2d_with_indices", args, dtype), "");
  }

  Pool p = std::get<0>(GetParam());
  mt_dtype dtype = std::get<1>(GetParam());
  Random random{11};
  TestTensor self = random.filled(dtype, p.self, true);
  mt_args_max_pool2d_with_indices args{};
  TestTensor best = TestTensor::empty(dtype, p.out);  // by the reference
  TestTensor places = TestTensor::empty(sdk::dtype_of<int64_t>, p.out);
};
INSTANTIATE_TEST_SUITE_P(, MaxPool,
                         ::testing::Combine(::testing::ValuesIn(kPools),
                                            ::testing::ValuesIn(kAllDtypes)),
                         name_of_pool);
INSTANTIATE_TEST_SUITE_P(Dilated, MaxPool,
                         ::testing::Combine(::testing::Values(kDilatedPool),
                                            ::testing::ValuesIn(kAllDtypes)),
                         name_of_pool);

TEST_P(MaxPool, AgreesWithTheReference) {
  const TestTensor out = random.tensor(dtype, p.out);
  const TestTensor indices = random.tensor(sdk::dtype_of<int64_t>, p.out);
  args.out = out, args.indices = indices;
  TestContext context(2);
  ASSERT_EQ(run_cpu(cpu::register_pooling, "max_pool2d_with_indices", args, context), MT_OK);
  expect_near(out, best, 0, 1, "maxima");
  ASSERT_EQ(indices.values<int64_t>(), places.values<int64_t>());
}

TEST_P(MaxPool, IndicesAreOptional) {
  const TestTensor out = random.tensor(dtype, p.out);
  args.out = out, args.indices = nullptr;
  TestContext context(2);
  ASSERT_EQ(run_cpu(cpu::register_pooling, "max_pool2d_with_indices", args, context), MT_OK);
  expect_near(out, best, 0, 1, "maxima");
}

TEST_P(MaxPool, GradientAgreesWithTheReference) {
  const TestTensor grad = random.filled(dtype, p.out);
  mt_args_max_pool2d_with_indices_backward back{};
  back.grad_output = grad, back.indices = places, back.input_size = list(p.self);
  back.header.compute = dtype;
  expect_same(cpu::register_pooling, "max_pool2d_with_indices_backward", back,
              &mt_args_max_pool2d_with_indices_backward::out, dtype, p.self, random, 4, 4);
}

class AvgPool : public ::testing::TestWithParam<PoolCase> {};
INSTANTIATE_TEST_SUITE_P(, AvgPool,
                         ::testing::Combine(::testing::ValuesIn(kPools),
                                            ::testing::ValuesIn(dtypes_where(sdk::is_floating))),
                         name_of_pool);

TEST_P(AvgPool, AgreesWithTheReference) {
  const auto& [p, dtype] = GetParam();
  Random random(12);
  for (const bool padding_counts : {false, true}) {
    for (const int64_t divisor : {0, 3}) {
      const TestTensor self = random.filled(dtype, p.self);
      mt_args_avg_pool2d args{};
      args.self = self;
      args.kernel_size = list(p.kernel), args.stride = list(p.stride);
      args.padding = list(p.padding);
      args.count_include_pad = padding_counts;
      args.divisor_override = {divisor, divisor != 0};
      expect_same(cpu::register_pooling, "avg_pool2d", args, &mt_args_avg_pool2d::out, dtype, p.out,
                  random, 4, 2);
    }
  }
}

TEST_P(AvgPool, GradientAgreesWithTheReference) {
  const auto& [p, dtype] = GetParam();
  Random random(12);
  for (const bool padding_counts : {false, true}) {
    for (const int64_t divisor : {0, 3}) {
      const TestTensor grad = random.filled(dtype, p.out);
      mt_args_avg_pool2d_backward args{};
      args.grad_output = grad, args.input_size = list(p.self);
      args.kernel_size = list(p.kernel), args.stride = list(p.stride);
      args.padding = list(p.padding);
      args.count_include_pad = padding_counts;
      args.divisor_override = {divisor, divisor != 0};
      expect_same(cpu::register_pooling, "avg_pool2d_backward", args,
                  &mt_args_avg_pool2d_backward::out, dtype, p.self, random, 4, 4);
    }
  }
}

// Vectors may extend over the end of a row, but not over the end of a plane.
TEST(PoolingWindows, HalvesOfPlanesOfAnySizeAgreeWithTheReference) {
  Random random(13);
  for (int64_t height = 2; height <= 6; ++height) {
    for (int64_t width = 2; width <= 37; ++width) {
      check_maxima(side(height, 2, 2, 0), side(width, 2, 2, 0), sdk::dtype_of<float>, false,
                   random);
    }
  }
}

// ---- channels last: vectors extend along the channels, with a remainder

TestTensor channels_last(mt_dtype dtype, int64_t channels, int64_t height, int64_t width) {
  return TestTensor::empty(dtype, {2, height, width, channels})
      .as_strided({2, channels, height, width},
                  {height * width * channels, 1, width * channels, channels});
}

class ChannelsLastMaxPool : public ::testing::TestWithParam<std::tuple<int64_t, mt_dtype>> {};
INSTANTIATE_TEST_SUITE_P(, ChannelsLastMaxPool,
                         ::testing::Combine(::testing::Values(2, 3, 4, 7, 8, 13, 50),
                                            ::testing::ValuesIn(kAllDtypes)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "_channels_" +
                                  sdk::dtype_name(std::get<1>(info.param));
                         });

TEST_P(ChannelsLastMaxPool, MaximaAndGradientAgreeWithTheReference) {
  const auto& [c, dtype] = GetParam();
  Random random(14);
  const Shape kernel = {3, 2}, stride = {2, 1}, padding = {1, 1}, dilation = {1, 2};
  const Shape size = {2, c, 5, 6}, pooled = {2, c, 3, 6};
  const mt_dtype index = sdk::dtype_of<int64_t>;
  const TestTensor self = channels_last(dtype, c, 5, 6), grad = channels_last(dtype, c, 3, 6);
  random.fill(self, true);
  random.fill(grad);
  mt_args_max_pool2d_with_indices args{};
  args.self = self;
  args.kernel_size = list(kernel), args.stride = list(stride);
  args.padding = list(padding), args.dilation = list(dilation);
  args.header.compute = dtype;
  mt_args_max_pool2d_with_indices_backward back{};
  back.grad_output = grad, back.input_size = list(size);
  back.header.compute = dtype;
  struct {
    TestTensor best, places, gradient;
  } expected = {TestTensor::empty(dtype, pooled), TestTensor::empty(index, pooled),
                TestTensor::empty(dtype, size)},
    actual = {channels_last(dtype, c, 3, 6), channels_last(index, c, 3, 6),
              channels_last(dtype, c, 5, 6)};

  args.out = expected.best, args.indices = expected.places;
  ASSERT_EQ(run_op("max_pool2d_with_indices", args, dtype), "");
  back.indices = expected.places, back.out = expected.gradient;
  ASSERT_EQ(run_op("max_pool2d_with_indices_backward", back, dtype), "");

  TestContext context(5);
  args.out = actual.best, args.indices = actual.places;
  ASSERT_EQ(run_cpu(cpu::register_pooling, "max_pool2d_with_indices", args, context), MT_OK);
  back.indices = actual.places, back.out = actual.gradient;
  ASSERT_EQ(run_cpu(cpu::register_pooling, "max_pool2d_with_indices_backward", back, context),
            MT_OK);

  expect_near(actual.best, expected.best, 0, 1, "maxima");
  ASSERT_EQ(actual.places.values<int64_t>(), expected.places.values<int64_t>());
  expect_near(actual.gradient, expected.gradient, 4, 4, "gradient");
}

}  // namespace
}  // namespace mytorch::testing
