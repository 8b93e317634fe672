// Pooling against the reference, with infinities and NaNs among the elements.
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/avg_pool2d_backward.h"
#include "mytorch/abi_ops/max_pool2d_with_indices.h"
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

}  // namespace
}  // namespace mytorch::testing
