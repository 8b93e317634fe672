// The driver of pointwise operators: layouts, dtypes, sizes, errors, and programs compiled at run
// time.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "mytorch/abi_ops/add.h"
#include "mytorch/abi_ops/bitwise_not.h"
#include "mytorch/abi_ops/floor_divide.h"
#include "mytorch/abi_ops/mul_grad.h"
#include "mytorch/abi_ops/where.h"
#include "tests/backends/cpu-openmp/built_program.h"
#include "tests/backends/cpu-openmp/cpu_backend.h"

namespace mytorch::testing {
namespace {

mt_args_add_Tensor add_args(const TestTensor& self, const TestTensor& other, const TestTensor& out,
                            mt_scalar alpha = scalar(1)) {
  mt_args_add_Tensor args{};
  args.self = self;
  args.other = other;
  args.alpha = alpha;
  args.header.variant = alpha.kind == MT_SCALAR_INT && alpha.v.i == 1 ? 0 : 1;
  args.out = out;
  return args;
}

TEST(Pointwise, EverySmallSizeWithNothingWrittenBeyond) {
  for (int64_t n = 0; n < 70; ++n) {
    const std::vector<double> a = small_values(n, kFloat, 1), b = small_values(n, kFloat, 2);
    const TestTensor x = contiguous(tensor_of(kFloat, {n}, a)),
                     y = contiguous(tensor_of(kFloat, {n}, b));
    const TestTensor room = tensor_of(kFloat, {n + 1}, std::vector<double>(n + 1, 77));
    const TestTensor out = contiguous(room.as_strided({n}, {1}));
    auto args = add_args(x, y, out);
    ASSERT_EQ(run_cpu("add.Tensor", args, kFloat), "");
    const std::vector<double> got = room.values<double>();
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(got[i], a[i] + b[i]) << n << " " << i;
    ASSERT_EQ(got[n], 77) << n;
  }
}

// Layouts of operands that broadcast to (3, 5, 130).
struct Layout {
  const char* name;
  Shape shape, strides;
  int64_t size, offset;

  TestTensor make(int seed) const {
    return tensor_of(kFloat, {size}, small_values(size, kFloat, seed))
        .as_strided(shape, strides, offset);
  }
};
const Layout kLayouts[] = {
    {"Contiguous", {3, 5, 130}, {650, 130, 1}, 1950, 0},
    {"Transposed", {3, 5, 130}, {1, 3, 15}, 1950, 0},
    {"InnerTransposed", {3, 5, 130}, {650, 1, 5}, 1950, 0},
    {"EverySecond", {3, 5, 130}, {1300, 260, 2}, 3900, 0},
    {"Reversed", {3, 5, 130}, {650, 130, -1}, 1950, 129},
    {"AllReversed", {3, 5, 130}, {-650, -130, -1}, 1950, 1949},
    {"Row", {130}, {1}, 130, 0},
    {"Column", {5, 1}, {1, 1}, 5, 0},
    {"Plane", {3, 1, 130}, {130, 130, 1}, 390, 0},
    {"Expanded", {3, 5, 130}, {0, 130, 1}, 650, 0},
    {"OneElement", {1, 1}, {1, 1}, 1, 0},
    {"Scalar", {}, {}, 1, 0},
};

// out = x + 3 * y by the reference.
TestTensor reference_sum(const TestTensor& x, const TestTensor& y) {
  const TestTensor out = TestTensor::empty(kFloat, {3, 5, 130});
  BuiltProgram program("add.Tensor");
  const int32_t a = program.input(0), b = program.input(1), s = program.scalar();
  const int32_t product = program.op("mul", MT_TYPE_COMPUTE, s, b);
  program.output(0, program.op("add", MT_TYPE_COMPUTE, a, product));
  ProgramArgs args;
  args.in[0] = x;
  args.in[1] = y;
  args.scalar = scalar(3);
  args.out[0] = out;
  EXPECT_EQ(program.run(reference(), args, kFloat), "");
  return out;
}

class PointwiseLayouts : public ::testing::TestWithParam<std::tuple<Layout, Layout>> {};

TEST_P(PointwiseLayouts, GiveTheSumInAnyLayoutOfTheOutput) {
  const TestTensor x = std::get<0>(GetParam()).make(1), y = std::get<1>(GetParam()).make(2);
  for (const Layout& result : kLayouts) {
    if (result.shape.size() != 3 || result.shape[1] == 1 || result.strides[0] == 0) continue;
    const TestTensor out = result.make(3);
    auto args = add_args(x, y, out, scalar(3));
    ASSERT_EQ(run_cpu("add.Tensor", args, kFloat, 3), "");
    EXPECT_EQ(out.values<float>(), reference_sum(x, y).values<float>()) << result.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Pairs, PointwiseLayouts,
                         ::testing::Combine(::testing::ValuesIn(kLayouts),
                                            ::testing::ValuesIn(kLayouts)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "And" +
                                  std::get<1>(info.param).name;
                         });

TEST(Pointwise, SmallInnerDimensions) {
  const int64_t n = 7 * 11 * 13 * 3;
  const TestTensor x = tensor_of(kFloat, {7 * 11 * 13 * 6}, small_values(n * 2, kFloat))
                           .as_strided({7, 11, 13, 3}, {858, 78, 6, 2});
  const TestTensor y = tensor_of(kFloat, {11, 1, 3}, small_values(33, kFloat, 4));
  const TestTensor out = TestTensor::empty(kFloat, {7, 11, 13, 3});
  auto args = add_args(x, y, out);
  ASSERT_EQ(run_cpu("add.Tensor", args, kFloat, 4), "");
  const auto a = x.values<float>(), b = y.values<float>(), got = out.values<float>();
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(got[i], a[i] + b[i / 39 % 11 * 3 + i % 3]) << i;
  }
}

// The dtype of one operand, and the compute type, which is also the dtype of the other operand.
class PointwiseDtypes : public ::testing::TestWithParam<std::tuple<mt_dtype, mt_dtype>> {};

TEST_P(PointwiseDtypes, GiveResultsOfEveryDtype) {
  const auto [from, compute] = GetParam();
  for (const mt_dtype to : kAllDtypes) {
    // For bools, the reference keeps 1 + 1 as 2 until it stores the result.
    if (sdk::is_bool(compute) && !sdk::is_bool(to)) continue;
    const TestTensor x = tensor_of(from, {300}, small_values(300, from));
    const TestTensor y = tensor_of(compute, {300}, small_values(300, compute, 2));
    const TestTensor got = TestTensor::empty(to, {300}), want = TestTensor::empty(to, {300});
    auto args = add_args(x, y, got);
    ASSERT_EQ(run_cpu("add.Tensor", args, compute), "");
    BuiltProgram program("add.Tensor");
    const int32_t a = program.input(0), b = program.input(1);
    program.output(0, program.op("add", MT_TYPE_COMPUTE, a, b));
    ProgramArgs plain;
    plain.in[0] = x;
    plain.in[1] = y;
    plain.out[0] = want;
    ASSERT_EQ(program.run(reference(), plain, compute), "");
    const auto g = got.values<double>(), w = want.values<double>();
    for (size_t i = 0; i < g.size(); ++i) {
      ASSERT_NEAR(g[i], w[i], sdk::is_floating(compute) ? std::abs(w[i]) * 1e-2 : 0)
          << "as " << sdk::dtype_name(to) << " at " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pairs, PointwiseDtypes,
                         ::testing::Combine(::testing::ValuesIn(kAllDtypes),
                                            ::testing::ValuesIn(kAllDtypes)),
                         dtype_pair_case);

TEST(Pointwise, InPlaceAndLarge) {
  const int64_t n = 3'000'001;  // large enough for non-temporal stores
  const std::vector<double> a = small_values(n, kFloat, 1), b = small_values(n, kFloat, 2);
  const TestTensor x = contiguous(tensor_of(kFloat, {n}, a)),
                   y = contiguous(tensor_of(kFloat, {n}, b));
  const TestTensor out = contiguous(TestTensor::empty(kFloat, {n}));
  auto args = add_args(x, y, out);
  ASSERT_EQ(run_cpu("add.Tensor", args, kFloat, 2), "");
  args.out = x;
  ASSERT_EQ(run_cpu("add.Tensor", args, kFloat, 2), "");
  EXPECT_EQ(out.values<float>(), x.values<float>());
  const auto got = out.values<double>();
  for (int64_t i = 0; i < n; i += 997) ASSERT_EQ(got[i], a[i] + b[i]);
  ASSERT_EQ(got[n - 1], a[n - 1] + b[n - 1]);
}

TEST(Pointwise, NumbersAndNaN) {
  const TestTensor x = contiguous(tensor_of(kFloat, {4}, {kNaN, kInf, -kInf, 1}));
  const TestTensor out = contiguous(TestTensor::empty(kFloat, {4}));
  const TestTensor half = TestTensor::host<double>(0.5);
  auto args = add_args(x, half, out);
  ASSERT_EQ(run_cpu("add.Tensor", args, kFloat), "");
  const auto got = out.values<double>();
  EXPECT_TRUE(std::isnan(got[0]));
  EXPECT_EQ(got[1], kInf);
  EXPECT_EQ(got[2], -kInf);
  EXPECT_EQ(got[3], 1.5);
}

template <class T>
std::string divide(const char* op, std::vector<double> a, std::vector<double> b,
                   std::vector<double>* got) {
  mt_args_floor_divide args{};
  const int64_t n = static_cast<int64_t>(a.size());
  const TestTensor x = TestTensor::of<T>({n}, a), y = TestTensor::of<T>({n}, b);
  const TestTensor out = TestTensor::empty(sdk::dtype_of<T>, {n});
  args.self = x;
  args.other = y;
  args.out = out;
  const std::string error = run_cpu(op, args, sdk::dtype_of<T>);
  *got = out.values<double>();
  return error;
}

TEST(Pointwise, IntegerDivision) {
  std::vector<double> got;
  EXPECT_EQ(
      divide<int32_t>("floor_divide", {7, -7, 7, -7, -2147483648.0}, {2, 2, -2, -2, -1}, &got), "");
  EXPECT_EQ(got, (std::vector<double>{3, -4, -4, 3, -2147483648.0}));
  EXPECT_EQ(divide<int8_t>("floor_divide", {-128, 127}, {-1, 2}, &got), "");
  EXPECT_EQ(got, (std::vector<double>{-128, 63}));
  EXPECT_EQ(divide<int64_t>("floor_divide", {1, 2, 3}, {1, 0, 1}, &got),
            "status 5: [floor_divide] integer division by zero");
  EXPECT_EQ(divide<uint8_t>("floor_divide", {200}, {0}, &got),
            "status 5: [floor_divide] integer division by zero");
  EXPECT_EQ(divide<float>("floor_divide", {1}, {0}, &got), "");
  EXPECT_EQ(got, std::vector<double>{kInf});
}

TEST(Pointwise, NotOfBoolIsLogical) {
  mt_args_bitwise_not args{};
  const TestTensor x = TestTensor::of<bool>({3}, std::vector<double>{0, 1, 1});
  const TestTensor out = TestTensor::empty(sdk::dtype_of<bool>, {3});
  args.self = x;
  args.out = out;
  ASSERT_EQ(run_cpu("bitwise_not", args, sdk::dtype_of<bool>), "");
  EXPECT_EQ(out.values<int>(), (std::vector<int>{1, 0, 0}));
  const TestTensor bytes = TestTensor::of<uint8_t>({2}, std::vector<double>{0, 170});
  const TestTensor out8 = TestTensor::empty(sdk::dtype_of<uint8_t>, {2});
  args.self = bytes;
  args.out = out8;
  ASSERT_EQ(run_cpu("bitwise_not", args, sdk::dtype_of<uint8_t>), "");
  EXPECT_EQ(out8.values<int>(), (std::vector<int>{255, 85}));
}

// Rows of n elements.
class PointwiseRows : public ::testing::TestWithParam<int64_t> {};

// One element per row in neither, the first, the second or both inputs; or an output that is also
// an input.
TEST_P(PointwiseRows, MayHaveOneElementThatIsBroadcast) {
  const int64_t n = GetParam();
  for (const int which : {0, 1, 2, 3, 4}) {
    const int64_t rows = 7;
    const auto make = [&](bool column, int seed) {
      const int64_t size = column ? rows : rows * n;
      const TestTensor x = tensor_of(kFloat, {size}, small_values(size, kFloat, seed));
      return x.as_strided({rows, n}, column ? Shape{1, 0} : Shape{n, 1});
    };
    const TestTensor x = make((which & 1) != 0, 1), y = make((which & 2) != 0, 2);
    const TestTensor out = which == 4 ? x : make(false, 3);
    const auto a = x.values<float>(), b = y.values<float>();
    auto args = add_args(x, y, out);
    ASSERT_EQ(run_cpu("add.Tensor", args, kFloat, 2), "");
    const auto got = out.values<float>();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], a[i] + b[i]) << n << " " << which;
    // A bool condition with float operands.
    const TestTensor c = TestTensor::of<bool>({rows}, small_values(rows, sdk::dtype_of<bool>));
    const TestTensor condition = c.as_strided({rows, n}, {1, 0});
    mt_args_where_self where{};
    where.condition = condition, where.self = x, where.other = y;
    const TestTensor chosen = make(false, 4);
    const auto first = x.values<float>(), second = y.values<float>();
    where.out = chosen;
    ASSERT_EQ(run_cpu("where.self", where, kFloat, 2), "");
    const auto flags = condition.values<int>();
    const auto result = chosen.values<float>();
    for (size_t i = 0; i < result.size(); ++i) {
      ASSERT_EQ(result[i], flags[i] != 0 ? first[i] : second[i]) << n << " " << which;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, PointwiseRows,
                         ::testing::Values(56, 57, 63, 64, 72, 79, 95, 128, 129, 135, 136, 144, 150,
                                           200),
                         ::testing::PrintToStringParamName());

// Rows of a wider matrix, with one input row that is broadcast to all rows. The gaps between the
// rows keep their values.
TEST(Pointwise, ShortRowsWithGaps) {
  constexpr int64_t kRows = 5, kGap = 3;
  for (const mt_dtype dtype : {kFloat, sdk::dtype_of<double>, sdk::dtype_of<int64_t>}) {
    for (const int64_t n : {20, 56, 61, 64, 72, 99}) {
      const int64_t pitch = n + kGap, size = kRows * pitch;
      const TestTensor wide = tensor_of(dtype, {size}, small_values(size, dtype, 1));
      const TestTensor row = tensor_of(dtype, {n}, small_values(n, dtype, 2));
      const TestTensor room = tensor_of(dtype, {size}, std::vector<double>(size, 77));
      const TestTensor x = wide.as_strided({kRows, n}, {pitch, 1});
      const TestTensor y = row.as_strided({kRows, n}, {0, 1});
      const TestTensor out = room.as_strided({kRows, n}, {pitch, 1});
      auto args = add_args(x, y, out);
      ASSERT_EQ(run_cpu("add.Tensor", args, dtype), "");
      const auto a = wide.values<double>(), b = row.values<double>(), got = room.values<double>();
      for (int64_t i = 0; i < size; ++i) {
        ASSERT_EQ(got[i], i % pitch < n ? a[i] + b[i % pitch] : 77) << n << " " << i;
      }
    }
  }
}

TEST(Pointwise, WhereReadsBoolsOfAnyLayout) {
  mt_args_where_self args{};
  const TestTensor c = TestTensor::of<bool>({40}, small_values(40, sdk::dtype_of<bool>));
  const TestTensor x = tensor_of(kFloat, {4, 20}, std::vector<double>(80, kNaN));
  const TestTensor y = tensor_of(kFloat, {20}, small_values(20, kFloat));
  const TestTensor out = TestTensor::empty(kFloat, {2, 20});
  const TestTensor condition = c.as_strided({2, 20}, {1, 2});
  args.condition = condition;
  const TestTensor nan = x.as_strided({2, 20}, {20, 1});
  args.self = nan;
  args.other = y;
  args.out = out;
  ASSERT_EQ(run_cpu("where.self", args, kFloat), "");
  const auto flags = condition.values<int>();
  const auto got = out.values<float>(), other = y.values<float>();
  for (size_t i = 0; i < got.size(); ++i) {
    if (flags[i] != 0) {
      EXPECT_TRUE(std::isnan(got[i])) << i;
    } else {
      EXPECT_EQ(got[i], other[i % 20]) << i;
    }
  }
}

TEST(Pointwise, UnwantedOutputsAndAbsentInputs) {
  mt_args_mul_grad_Tensor args{};
  const TestTensor grad = contiguous(tensor_of(kFloat, {9}, small_values(9, kFloat)));
  const TestTensor other = contiguous(tensor_of(kFloat, {9}, small_values(9, kFloat, 2)));
  const TestTensor out = contiguous(TestTensor::empty(kFloat, {9}));
  args.grad = grad;
  args.other = other;  // self is only needed for the gradient of other
  args.grad_self = out;
  ASSERT_EQ(run_cpu("mul_grad.Tensor", args, kFloat), "");
  const auto g = grad.values<float>(), o = other.values<float>(), got = out.values<float>();
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(got[i], g[i] * o[i]);
}

// ---- programs compiled at run time

class CompiledPrograms : public ::testing::TestWithParam<mt_dtype> {};

TEST_P(CompiledPrograms, TruncateAfterEachNode) {
  const mt_dtype compute = GetParam();
  BuiltProgram program;
  const int32_t a = program.input(0), b = program.input(1), s = program.scalar();
  const int32_t c = program.constant(2);
  const int32_t product = program.op("mul", MT_TYPE_COMPUTE, a, b);
  const int32_t sum = program.op("add", MT_TYPE_COMPUTE, product, s);
  const int32_t less = program.op("lt", MT_TYPE_BOOL, sum, a);
  const int32_t most = program.op("maximum", MT_TYPE_COMPUTE, sum, c);
  program.output(0, program.op("where", MT_TYPE_COMPUTE, less, most, b)).output(1, less);
  ProgramArgs args;
  const TestTensor x = tensor_of(compute, {700}, small_values(700, compute, 5));
  const TestTensor y = tensor_of(compute, {700}, small_values(700, compute, 6));
  args.in[0] = x;
  args.in[1] = y;
  args.scalar = scalar(40);
  TestTensor values[2], flags[2];
  for (int i = 0; i < 2; ++i) {
    values[i] = TestTensor::empty(compute, {700});
    flags[i] = TestTensor::empty(sdk::dtype_of<bool>, {700});
    args.out[0] = values[i];
    args.out[1] = flags[i];
    ASSERT_EQ(program.run(i == 0 ? cpu() : reference(), args, compute, 2), "");
  }
  EXPECT_EQ(flags[0].values<int>(), flags[1].values<int>()) << sdk::dtype_name(compute);
  const auto got = values[0].values<double>(), want = values[1].values<double>();
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], want[i]) << sdk::dtype_name(compute) << " " << i;
  }
}

// The first output overwrites the input that is the second one.
TEST_P(CompiledPrograms, OutputsMayBeInputsInTheirPlace) {
  const mt_dtype compute = GetParam();
  BuiltProgram program;
  const int32_t a = program.input(0);
  program.output(0, program.op("add", MT_TYPE_COMPUTE, a, a)).output(1, a);
  const TestTensor x = tensor_of(compute, {700}, small_values(700, compute, 5));
  const TestTensor copy = TestTensor::empty(compute, {700});
  const auto before = x.values<double>();
  ProgramArgs args;
  args.in[0] = x;
  args.out[0] = x;
  args.out[1] = copy;
  ASSERT_EQ(program.run(cpu(), args, compute), "");
  EXPECT_EQ(copy.values<double>(), before) << sdk::dtype_name(compute);
}

TEST(ComplexPrograms, OutputsMayBeInputsInTheirPlace) {
  constexpr mt_dtype kComplex64 = {MT_COMPLEX, 64, 1};
  BuiltProgram program;
  const int32_t a = program.input(0);
  program.output(0, program.op("add", MT_TYPE_COMPUTE, a, a)).output(1, a);
  const TestTensor x = TestTensor::empty(kComplex64, {700});
  const TestTensor copy = TestTensor::empty(kComplex64, {700});
  float* const parts = static_cast<float*>(x.view().raw());
  for (int i = 0; i < 1400; ++i) parts[i] = static_cast<float>(i) - 300;
  ProgramArgs args;
  args.in[0] = x;
  args.out[0] = x;
  args.out[1] = copy;
  ASSERT_EQ(program.run(cpu(), args, kComplex64), "");
  const float* const copied = static_cast<const float*>(copy.view().raw());
  for (int i = 0; i < 1400; ++i) {
    ASSERT_EQ(copied[i], static_cast<float>(i) - 300) << i;
    ASSERT_EQ(parts[i], 2 * (static_cast<float>(i) - 300)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CompiledPrograms, ::testing::ValuesIn(kAllDtypes), dtype_case);

}  // namespace
}  // namespace mytorch::testing
