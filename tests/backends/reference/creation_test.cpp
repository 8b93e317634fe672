// copy_, fill_, arange and the random fills.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "mytorch/abi_ops/arange.h"
#include "mytorch/abi_ops/copy_.h"
#include "mytorch/abi_ops/fill_.h"
#include "mytorch/abi_ops/normal_.h"
#include "mytorch/abi_ops/random_.h"
#include "mytorch/abi_ops/uniform_.h"
#include "mytorch/backend/philox.h"
#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {
namespace {

std::string copy(const TestTensor& from, const TestTensor& to) {
  mt_args_copy_ args{};
  args.self = to;
  args.src = from;
  return run_op("copy_", args, to.dtype());
}

const mt_dtype kDtypes[] = {sdk::dtype_of<bool>,      sdk::dtype_of<uint8_t>,
                            sdk::dtype_of<int8_t>,    sdk::dtype_of<int16_t>,
                            sdk::dtype_of<int32_t>,   sdk::dtype_of<int64_t>,
                            sdk::dtype_of<sdk::Half>, sdk::dtype_of<sdk::BFloat16>,
                            sdk::dtype_of<float>,     sdk::dtype_of<double>};

TEST(CopyTest, ConvertsBetweenAllDtypes) {
  for (const mt_dtype from : kDtypes) {
    for (const mt_dtype to : kDtypes) {
      const TestTensor source = TestTensor::empty(from, {2, 3});
      ASSERT_EQ(copy(TestTensor::of<double>({2, 3}, {0, 1, 2, 3, 100, 5}), source), "");
      const TestTensor target = TestTensor::empty(to, {3, 2}).reversed();
      ASSERT_EQ(copy(source, target), "");
      std::vector<double> expected = {0, 1, 2, 3, 100, 5};
      if (sdk::is_bool(from) || sdk::is_bool(to)) expected = {0, 1, 1, 1, 1, 1};
      EXPECT_EQ(target.values<double>(), expected)
          << sdk::dtype_name(from) << " to " << sdk::dtype_name(to);
    }
  }
}

TEST(CopyTest, ConversionsRoundOnceAndWrap) {
  const auto convert = [](const TestTensor& from, mt_dtype to) {
    const TestTensor target = TestTensor::empty(to, {from.view().size(0)});
    EXPECT_EQ(copy(from, target), "");
    return target.values<double>();
  };
  using V = std::vector<double>;
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(convert(TestTensor::of<float>({5}, {-1, 1.9, -1.9, 255, 256}), sdk::dtype_of<uint8_t>),
            (V{255, 1, 255, 255, 0}));
  EXPECT_EQ(convert(TestTensor::of<float>({3}, {NAN, 0.1, -0.0}), sdk::dtype_of<bool>),
            (V{1, 1, 0}));
  EXPECT_EQ(convert(TestTensor::of<double>({3}, {NAN, inf, -inf}), sdk::dtype_of<int64_t>),
            (V{-0x1p63, -0x1p63, -0x1p63}));
  EXPECT_EQ(convert(TestTensor::of<int64_t>({2}, {257, -129}), sdk::dtype_of<int8_t>), (V{1, 127}));
  EXPECT_EQ(convert(TestTensor::of<float>({4}, {65519, 65520, 0x1p-25, 0x1.8p-25}),
                    sdk::dtype_of<sdk::Half>),
            (V{65504, inf, 0, 0x1p-24}));
  EXPECT_EQ(
      convert(TestTensor::of<float>({2}, {1 + 0x1p-8, 1 + 0x1.8p-8}), sdk::dtype_of<sdk::BFloat16>),
      (V{1, 1 + 0x1p-7}));
  EXPECT_TRUE(std::isnan(convert(TestTensor::of<float>({1}, {NAN}), sdk::dtype_of<sdk::Half>)[0]));
}

TEST(CopyTest, TakesBroadcastReversedAndEmptyTensors) {
  const TestTensor row = TestTensor::of<float>({3}, {1, 2, 3});
  const TestTensor target = TestTensor::empty(sdk::dtype_of<float>, {2, 3});
  EXPECT_EQ(copy(row, target), "");
  EXPECT_EQ(target.values<double>(), (std::vector<double>{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(copy(row.as_strided({3}, {-1}, 2), row.as_strided({3}, {0})), "");
  EXPECT_EQ(copy(TestTensor::empty(row.dtype(), {0, 3}), TestTensor::empty(row.dtype(), {0, 3})),
            "");
  EXPECT_EQ(copy(TestTensor::of<float>({}, {7}), TestTensor::empty(row.dtype(), {0})), "");
  const TestTensor flipped = TestTensor::empty(row.dtype(), {3});
  EXPECT_EQ(copy(TestTensor::of<float>({3}, {1, 2, 3}).as_strided({3}, {-1}, 2), flipped), "");
  EXPECT_EQ(flipped.values<double>(), (std::vector<double>{3, 2, 1}));
}

TEST(FillTest, FillsWithNumbersAndTensors) {
  const TestTensor self = TestTensor::empty(sdk::dtype_of<int16_t>, {2, 2}).reversed();
  const TestTensor value = TestTensor::host<double>(-3.7);
  mt_args_fill_ args{};
  args.self = self;
  args.value = value;
  ASSERT_EQ(run_op("fill_", args, self.dtype()), "");
  EXPECT_EQ(self.values<double>(), (std::vector<double>{-3, -3, -3, -3}));
}

std::vector<double> arange(mt_scalar start, mt_scalar step, const TestTensor& out) {
  mt_args_arange_start_step args{};
  args.start = start;
  args.step = step;
  args.dtype = out.dtype();
  args.out = out;
  EXPECT_EQ(run_op("arange.start_step", args, out.dtype()), "");
  return out.values<double>();
}

TEST(ArangeTest, ElementsAreMultipliedNotAccumulated) {
  using V = std::vector<double>;
  EXPECT_EQ(arange(scalar(3), scalar(-2), TestTensor::empty(sdk::dtype_of<int64_t>, {3})),
            (V{3, 1, -1}));
  EXPECT_EQ(arange(scalar(0.5), scalar(0.25), TestTensor::empty(sdk::dtype_of<float>, {3})),
            (V{0.5, 0.75, 1}));
  // Computed as start + i * step, not accumulated.
  const V many = arange(scalar(0), scalar(0.1), TestTensor::empty(sdk::dtype_of<double>, {1001}));
  EXPECT_EQ(many[1000], 1000 * 0.1);
  // Exact, unlike doubles.
  const TestTensor big = TestTensor::empty(sdk::dtype_of<int64_t>, {2});
  arange(scalar((int64_t{1} << 53) + 1), scalar(1), big);
  EXPECT_EQ(big.values<int64_t>()[1], (int64_t{1} << 53) + 2);
  EXPECT_EQ(arange(scalar(0), scalar(1), TestTensor::empty(sdk::dtype_of<float>, {0})), V{});
}

// ---- random ----

constexpr int64_t kMany = 40000;

template <class Args>
TestTensor random(const char* op, Args args, mt_dtype dtype, Shape shape, uint64_t call = 7) {
  const TestTensor self = TestTensor::empty(dtype, std::move(shape));
  args.self = self;
  args.generator.seed = 0x123456789ABCDEFull;
  args.generator.call = call;
  EXPECT_EQ(run_op(op, args, dtype), "");
  return self;
}

template <class T>
std::vector<double> uniform(double from, double to, uint64_t call = 7) {
  mt_args_uniform_ args{};
  args.from = from;
  args.to = to;
  return random("uniform_", args, sdk::dtype_of<T>, {kMany}, call).template values<double>();
}

template <class T>
void expect_uniform(double from, double to) {
  const std::vector<double> values = uniform<T>(from, to);
  double sum = 0;
  for (const double v : values) {
    ASSERT_GE(v, from);
    ASSERT_LT(v, to);
    sum += v;
  }
  const double deviation = (to - from) / std::sqrt(12.0 * kMany);
  EXPECT_NEAR(sum / kMany, (from + to) / 2, 5 * deviation + 0.002 * (to - from));
}

TEST(RandomTest, UniformMatchesPhilox) {
  expect_uniform<float>(0, 1);
  expect_uniform<float>(-3, 5);
  expect_uniform<double>(-3, 5);
  expect_uniform<sdk::Half>(0, 1);
  expect_uniform<sdk::BFloat16>(-1, 1);
  for (const double v : uniform<float>(1, 1 + 0x1p-22)) {  // two floats: rounding would reach `to`
    ASSERT_GE(v, 1);
    ASSERT_LT(v, 1 + 0x1p-22);
  }
  EXPECT_NE(uniform<float>(0, 1, 7), uniform<float>(0, 1, 8));
  for (const double v : uniform<float>(2, 2)) ASSERT_EQ(v, 2);
}

TEST(RandomTest, ElementsDependOnTheLogicalIndexNotOnMemory) {
  mt_args_uniform_ args{};
  args.to = 1;
  const std::vector<double> contiguous =
      random("uniform_", args, sdk::dtype_of<float>, {3, 5}).values<double>();
  const TestTensor strided = TestTensor::empty(sdk::dtype_of<float>, {5, 3}).reversed();
  args.self = strided;
  args.generator.seed = 0x123456789ABCDEFull;
  // The call number is the sum of both parts.
  const uint64_t on_device = 5;
  args.generator.call = 2;
  args.generator.call_on_device = &on_device;
  ASSERT_EQ(run_op("uniform_", args, strided.dtype()), "");
  EXPECT_EQ(strided.values<double>(), contiguous);
}

TEST(RandomTest, NormalMatchesPhiloxAndHasTheMoments) {
  mt_args_normal_ args{};
  args.mean = 3;
  args.std = 2;
  for (const mt_dtype dtype : {sdk::dtype_of<float>, sdk::dtype_of<double>,
                               sdk::dtype_of<sdk::Half>, sdk::dtype_of<sdk::BFloat16>}) {
    const std::vector<double> values = random("normal_", args, dtype, {kMany}).values<double>();
    double moments[5] = {};
    for (const double v : values) {
      for (int m = 1; m <= 4; ++m) moments[m] += std::pow((v - 3) / 2, m) / kMany;
    }
    // Each moment is within five standard deviations of its sampling error.
    EXPECT_NEAR(moments[1], 0, 5 / std::sqrt(kMany)) << sdk::dtype_name(dtype);
    EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2.0 / kMany));
    EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15.0 / kMany));
    EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96.0 / kMany));
  }
}

TEST(RandomTest, IntegersCoverTheRange) {
  mt_args_random__from args{};
  args.from = -3;
  args.to = {4, 1};
  int64_t counts[7] = {};
  for (const int64_t v :
       random("random_.from", args, sdk::dtype_of<int32_t>, {kMany}).values<int64_t>()) {
    ASSERT_GE(v, -3);
    ASSERT_LT(v, 4);
    ++counts[v + 3];
  }
  for (const int64_t count : counts) {
    EXPECT_NEAR(static_cast<double>(count), kMany / 7.0, 5 * std::sqrt(kMany / 7.0));
  }

  // Without `to`: up to and including the largest value.
  args.from = 0;
  args.to = {};
  int64_t largest = 0;
  for (const int64_t v :
       random("random_.from", args, sdk::dtype_of<int8_t>, {kMany}).values<int64_t>()) {
    ASSERT_GE(v, 0);
    largest = std::max(largest, v);
  }
  EXPECT_EQ(largest, 127);
  for (const double v :
       random("random_.from", args, sdk::dtype_of<float>, {1000}).values<double>()) {
    ASSERT_EQ(v, std::floor(v));
    ASSERT_LE(v, 0x1p24);
  }
  args.from = std::numeric_limits<int64_t>::min();
  bool negative = false;
  bool positive = false;
  for (const int64_t v :
       random("random_.from", args, sdk::dtype_of<int64_t>, {1000}).values<int64_t>()) {
    negative = negative || v < -(int64_t{1} << 61);
    positive = positive || v > int64_t{1} << 61;
  }
  EXPECT_TRUE(negative && positive);
}

}  // namespace
}  // namespace mytorch::testing
