// Every node operation against its definition, and the operands of pointwise programs.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/reference/test_program.h"

namespace mytorch::testing {
namespace {

constexpr int32_t B = MT_TYPE_BOOL;

// Runs a node operation with `arity` operands of type T. Returns its result as Out.
template <class T, class Out = T>
std::vector<Out> apply(const char* op, const std::vector<std::vector<T>>& operands,
                       std::string* error = nullptr) {
  TestProgram program;
  ProgramArgs args;
  std::vector<TestTensor> tensors;
  std::vector<int32_t> nodes;
  const int64_t n = static_cast<int64_t>(operands[0].size());
  for (size_t k = 0; k < operands.size(); ++k) {
    tensors.push_back(TestTensor::of<T, T>({n}, operands[k]));
    args.in[k] = tensors.back();
    nodes.push_back(program.input(static_cast<int>(k)));
  }
  const TestTensor out = TestTensor::empty(sdk::dtype_of<Out>, {n});
  args.out[0] = out;
  program.output(0, program.op(op, std::is_same_v<Out, bool> && !std::is_same_v<T, bool> ? B : C,
                               nodes[0], nodes.size() > 1 ? nodes[1] : -1));
  const std::string message = program.run(args, sdk::dtype_of<T>);
  if (error != nullptr) {
    *error = message;
  } else {
    EXPECT_EQ(message, "");
  }
  return out.values<Out>();
}

template <class T>
void expect_same(const char* op, T got, T expected, const std::string& at) {
  if (expected != expected) {
    EXPECT_TRUE(got != got) << op << "(" << at << ") is " << got << ", not NaN";
  } else {
    EXPECT_EQ(got, expected) << op << "(" << at << ")";
    if constexpr (std::is_floating_point_v<T>) {
      EXPECT_EQ(std::signbit(got), std::signbit(expected)) << op << "(" << at << ")";
    }
  }
}

const std::vector<double> kNumbers = {
    0.0, -0.0, 1,     -1,      0.5,   -0.5, 1.5,   2.5, -2.5,     0.1,    3,     -3,   7,     88,
    -88, 1e-8, -1e-8, 0.99999, 1e-40, 1e20, -1e20, 700, 123456.7, -1e300, 1e300, kInf, -kInf, kNaN};

TEST(InterpreterTest, UnaryOperationsOnFloatsAgreeWithTheStandardLibrary) {
  using F = double (*)(double);
  const std::vector<std::pair<const char*, F>> ops = {
      {"neg", [](double a) { return -a; }},
      {"conj_physical", [](double a) { return a; }},
      {"abs", [](double a) { return std::fabs(a); }},
      {"sqrt", [](double a) { return std::sqrt(a); }},
      {"rsqrt", [](double a) { return 1.0 / std::sqrt(a); }},
      {"exp", [](double a) { return std::exp(a); }},
      {"exp2", [](double a) { return std::exp2(a); }},
      {"expm1", [](double a) { return std::expm1(a); }},
      {"log", [](double a) { return std::log(a); }},
      {"log2", [](double a) { return std::log2(a); }},
      {"log10", [](double a) { return std::log10(a); }},
      {"log1p", [](double a) { return std::log1p(a); }},
      {"sin", [](double a) { return std::sin(a); }},
      {"cos", [](double a) { return std::cos(a); }},
      {"tan", [](double a) { return std::tan(a); }},
      {"asin", [](double a) { return std::asin(a); }},
      {"acos", [](double a) { return std::acos(a); }},
      {"atan", [](double a) { return std::atan(a); }},
      {"sinh", [](double a) { return std::sinh(a); }},
      {"cosh", [](double a) { return std::cosh(a); }},
      {"tanh", [](double a) { return std::tanh(a); }},
      {"asinh", [](double a) { return std::asinh(a); }},
      {"acosh", [](double a) { return std::acosh(a); }},
      {"atanh", [](double a) { return std::atanh(a); }},
      {"erf", [](double a) { return std::erf(a); }},
      {"erfc", [](double a) { return std::erfc(a); }},
      {"floor", [](double a) { return std::floor(a); }},
      {"ceil", [](double a) { return std::ceil(a); }},
      {"trunc", [](double a) { return std::trunc(a); }},
      {"round", [](double a) { return std::rint(a); }},
  };
  std::vector<float> floats;
  for (const double x : kNumbers) floats.push_back(static_cast<float>(x));
  for (const auto& [op, f] : ops) {
    const std::vector<double> doubles = apply<double>(op, {kNumbers});
    const std::vector<float> singles = apply<float>(op, {floats});
    for (size_t i = 0; i < kNumbers.size(); ++i) {
      expect_same(op, doubles[i], f(kNumbers[i]), std::to_string(kNumbers[i]));
      expect_same(op, singles[i], static_cast<float>(f(floats[i])), std::to_string(floats[i]));
    }
  }
}

TEST(InterpreterTest, FloatOperationsHaveKnownValues) {
  EXPECT_EQ(apply<float>("sign", {{-3, 0, 2, std::nanf("")}}), (std::vector<float>{-1, 0, 1, 0}));
  EXPECT_EQ(apply<float>("round", {{0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 2.6f}}),
            (std::vector<float>{0, 2, 2, -0.f, -2, 3}));
  const std::vector<double> s = apply<double>("sigmoid", {{0, -1000, 1000, -740, kInf, -kInf}});
  EXPECT_EQ(s[0], 0.5);
  EXPECT_EQ(s[1], 0);
  EXPECT_EQ(s[2], 1);
  EXPECT_EQ(s[3], std::exp(-740.0));
  EXPECT_EQ(s[4], 1);
  EXPECT_EQ(s[5], 0);
}

TEST(InterpreterTest, BinaryOperationsOnFloatsAgreeWithTheStandardLibrary) {
  struct Case {
    const char* op;
    double a, b, expected;
  };
  const std::vector<Case> cases = {
      {"add", 1, 2, 3},
      {"sub", 1, 2, -1},
      {"mul", kInf, 0, kNaN},
      {"div", 1, -0.0, -kInf},
      {"div", 0, 0, kNaN},
      {"maximum", kNaN, 1, kNaN},
      {"maximum", 1, kNaN, kNaN},
      {"maximum", -kInf, 3, 3},
      {"minimum", kNaN, 1, kNaN},
      {"minimum", 1, kNaN, kNaN},
      {"minimum", kInf, 3, 3},
      {"remainder", 7, 3, 1},
      {"remainder", -7, 3, 2},
      {"remainder", 7, -3, -2},
      {"remainder", -7, -3, -1},
      {"remainder", 5, kInf, 5},
      {"remainder", -5, kInf, kInf},
      {"remainder", 5, 0, kNaN},
      {"fmod", -7, 3, -1},
      {"fmod", 7, -3, 1},
      {"fmod", kInf, 3, kNaN},
      {"floor_divide", 7, 2, 3},
      {"floor_divide", -7, 2, -4},
      {"floor_divide", 1, 0.1, 9},  // the double 0.1 is greater than a tenth
      {"floor_divide", -0.0, 3, -0.0},
      {"floor_divide", 1, 0, kInf},
      {"floor_divide", -1, 0, -kInf},
      {"floor_divide", 0, 0, kNaN},
      {"floor_divide", -5, kInf, -1},
      {"trunc_divide", -7, 2, -3},
      {"trunc_divide", 7, -0.0, -kInf},
      {"pow", -8, 1.0 / 3, kNaN},
      {"pow", 0, 0, 1},
      {"pow", kNaN, 0, 1},
      {"pow", 1, kNaN, 1},
      {"pow", -2, 3, -8},
      {"pow", -0.0, -1, -kInf},
      {"atan2", -0.0, -1, -M_PI},
      {"atan2", kInf, kInf, M_PI / 4},
  };
  for (const Case& c : cases) {
    expect_same(c.op, apply<double>(c.op, {{c.a}, {c.b}})[0], c.expected,
                std::to_string(c.a) + ", " + std::to_string(c.b));
  }
  // The quotient is 4.9999999806, which is 5 as a float, in kernels and in ATen.
  EXPECT_EQ(apply<float>("trunc_divide", {{0x1.89374cp-10f}, {0x1.3a92a4p-12f}})[0], 5);
  EXPECT_EQ(apply<double>("trunc_divide", {{0x1.89374cp-10}, {0x1.3a92a4p-12}})[0], 4);
}

TEST(InterpreterTest, ComparisonsAreExact) {
  const std::vector<double> a = {1, 2, 3, kNaN, 0.0};
  const std::vector<double> b = {2, 2, 2, 2, -0.0};
  using V = std::vector<bool>;
  EXPECT_EQ((apply<double, bool>("eq", {a, b})), (V{0, 1, 0, 0, 1}));
  EXPECT_EQ((apply<double, bool>("ne", {a, b})), (V{1, 0, 1, 1, 0}));
  EXPECT_EQ((apply<double, bool>("lt", {a, b})), (V{1, 0, 0, 0, 0}));
  EXPECT_EQ((apply<double, bool>("le", {a, b})), (V{1, 1, 0, 0, 1}));
  EXPECT_EQ((apply<double, bool>("gt", {a, b})), (V{0, 0, 1, 0, 0}));
  EXPECT_EQ((apply<double, bool>("ge", {a, b})), (V{0, 1, 1, 0, 1}));
  EXPECT_EQ((apply<double, bool>("isnan", {a})), (V{0, 0, 0, 1, 0}));
  EXPECT_EQ((apply<int64_t, bool>("isnan", {{0, 5}})), (V{0, 0}));
  // Not equal as integers, though equal as doubles.
  const int64_t big = (int64_t{1} << 53) + 1;
  EXPECT_EQ((apply<int64_t, bool>("eq", {{big}, {big - 1}})), (V{0}));
}

TEST(InterpreterTest, IntegerOperationsAreExactAndWrap) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  struct Case {
    const char* op;
    int64_t a, b, expected;
  };
  const std::vector<Case> cases = {
      {"add", kMax, 1, kMin},
      {"sub", kMin, 1, kMax},
      {"mul", kMax, 2, -2},
      {"div", -7, 2, -3},
      {"floor_divide", -7, 2, -4},
      {"floor_divide", 7, -2, -4},
      {"floor_divide", -7, -2, 3},
      {"floor_divide", -8, 2, -4},
      {"floor_divide", kMin, -1, kMin},
      {"trunc_divide", -7, 2, -3},
      {"trunc_divide", kMin, -1, kMin},
      {"remainder", -7, 3, 2},
      {"remainder", 7, -3, -2},
      {"remainder", kMin, -1, 0},
      {"fmod", -7, 3, -1},
      {"fmod", 7, -3, 1},
      {"pow", 3, 4, 81},
      {"pow", 2, 64, 0},
      {"pow", -2, 63, kMin},
      {"pow", 2, -1, 0},
      {"pow", 1, -5, 1},
      {"pow", -1, -5, -1},
      {"pow", -1, -4, 1},
      {"pow", 0, 0, 1},
      {"maximum", -5, 3, 3},
      {"minimum", -5, 3, -5},
      {"bitwise_and", 12, 10, 8},
      {"bitwise_or", 12, 10, 14},
      {"bitwise_xor", 12, 10, 6},
      {"bitwise_left_shift", 1, 62, int64_t{1} << 62},
      {"bitwise_left_shift", 1, 64, 0},
      {"bitwise_left_shift", 1, -1, 0},
      {"bitwise_right_shift", -8, 1, -4},
      {"bitwise_right_shift", -8, 100, -1},
      {"bitwise_right_shift", 8, -1, 0},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(apply<int64_t>(c.op, {{c.a}, {c.b}})[0], c.expected)
        << c.op << "(" << c.a << ", " << c.b << ")";
  }
  EXPECT_EQ(apply<int64_t>("abs", {{kMin, -3}}), (std::vector<int64_t>{kMin, 3}));
  EXPECT_EQ(apply<int64_t>("neg", {{kMin, -3}}), (std::vector<int64_t>{kMin, 3}));
  EXPECT_EQ(apply<int64_t>("sign", {{-9, 0, 9}}), (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_EQ(apply<int64_t>("bitwise_not", {{0, 5}}), (std::vector<int64_t>{-1, -6}));
  for (const char* op : {"floor", "ceil", "round", "trunc"}) {
    EXPECT_EQ(apply<int64_t>(op, {{kMax, -3}}), (std::vector<int64_t>{kMax, -3})) << op;
  }
}

TEST(InterpreterTest, NarrowIntegersWrapAtEachNode) {
  EXPECT_EQ(apply<int8_t>("add", {{127}, {1}}), (std::vector<int8_t>{-128}));
  EXPECT_EQ(apply<uint8_t>("neg", {{1}}), (std::vector<uint8_t>{255}));
  EXPECT_EQ(apply<uint8_t>("bitwise_left_shift", {{255, 1}, {1, 8}}),
            (std::vector<uint8_t>{254, 0}));
  EXPECT_EQ(apply<uint8_t>("bitwise_right_shift", {{255}, {9}}), (std::vector<uint8_t>{0}));
  EXPECT_EQ(apply<int8_t>("bitwise_right_shift", {{-128}, {7}}), (std::vector<int8_t>{-1}));
  // (100 + 100) / 2 with int8 is -28, not 100.
  TestProgram program;
  const int32_t x = program.input(0);
  const int32_t two = program.constant(2);
  program.output(0, program.op("floor_divide", C, program.op("add", C, x, x), two));
  const TestTensor in = TestTensor::of<int8_t>({1}, {100});
  const TestTensor out = TestTensor::empty(in.dtype(), {1});
  ProgramArgs args;
  args.in[0] = in;
  args.out[0] = out;
  EXPECT_EQ(program.run(args, in.dtype()), "");
  EXPECT_EQ(out.values<int64_t>()[0], -28);
}

TEST(InterpreterTest, IntegerDivisionByZeroIsAnError) {
  for (const char* op : {"floor_divide", "trunc_divide", "remainder", "fmod"}) {
    std::string error;
    apply<int32_t>(op, {{1, 2}, {1, 0}}, &error);
    EXPECT_EQ(error,
              "status " + std::to_string(MT_ERROR_VALUE) + ": [test] integer division by zero")
        << op;
  }
}

TEST(InterpreterTest, BoolsAreLogical) {
  using V = std::vector<bool>;
  const std::vector<bool> a = {0, 0, 1, 1};
  const std::vector<bool> b = {0, 1, 0, 1};
  EXPECT_EQ(apply<bool>("add", {a, b}), (V{0, 1, 1, 1}));
  EXPECT_EQ(apply<bool>("mul", {a, b}), (V{0, 0, 0, 1}));
  EXPECT_EQ(apply<bool>("maximum", {a, b}), (V{0, 1, 1, 1}));
  EXPECT_EQ(apply<bool>("bitwise_xor", {a, b}), (V{0, 1, 1, 0}));
  EXPECT_EQ(apply<bool>("bitwise_not", {b}), (V{1, 0, 1, 0}));
}

TEST(InterpreterTest, LogicWhereAndCastsHaveKnownValues) {
  const TestTensor x = TestTensor::of<float>({4}, {0, -2, kNaN, 3});
  const TestTensor mask = TestTensor::of<uint8_t>({4}, {0, 7, 1, 0});
  TestProgram program;
  const int32_t in = program.input(0);
  const int32_t m = program.input(1, B);
  const int32_t truth = program.op("cast", B, in);
  program.output(0, program.op("logical_and", B, truth, m));
  program.output(1, program.op("where", C, m, in, program.op("cast", C, truth)));
  program.output(2, program.op("logical_xor", B, program.op("logical_not", B, truth),
                               program.op("logical_or", B, truth, m)));
  const TestTensor out0 = TestTensor::empty(sdk::dtype_of<bool>, {4});
  const TestTensor out1 = TestTensor::empty(sdk::dtype_of<float>, {4});
  const TestTensor out2 = TestTensor::empty(sdk::dtype_of<bool>, {4});
  ProgramArgs args;
  args.in[0] = x;
  args.in[1] = mask;
  args.out[0] = out0;
  args.out[1] = out1;
  args.out[2] = out2;
  ASSERT_EQ(program.run(args, sdk::dtype_of<float>), "");
  EXPECT_EQ(out0.values<bool>(), (std::vector<bool>{0, 1, 1, 0}));
  EXPECT_EQ(out1.values<float>()[0], 0);
  EXPECT_EQ(out1.values<float>()[1], -2);
  EXPECT_TRUE(std::isnan(out1.values<float>()[2]));
  EXPECT_EQ(out1.values<float>()[3], 1);
  EXPECT_EQ(out2.values<bool>(), (std::vector<bool>{1, 1, 1, 1}));
}

TEST(InterpreterTest, ReducedFloatsRoundOnce) {
  // 1 + 2^-11 + 2^-30 is slightly above the midpoint of two halves. If rounded to float first, it
  // would become the midpoint and then round to 1.
  TestProgram program;
  program.output(0, program.op("add", C, program.input(0), program.input(1)));
  const TestTensor a = TestTensor::of<double>({}, {1 + 0x1p-11});
  const TestTensor b = TestTensor::of<double>({}, {0x1p-30});
  for (const double sign : {1.0, -1.0}) {
    const TestTensor sa = TestTensor::of<double>({}, {sign * a.values<double>()[0]});
    const TestTensor sb = TestTensor::of<double>({}, {sign * b.values<double>()[0]});
    const TestTensor out = TestTensor::empty(sdk::dtype_of<sdk::Half>, {});
    ProgramArgs args;
    args.in[0] = sa;
    args.in[1] = sb;
    args.out[0] = out;
    ASSERT_EQ(program.run(args, sdk::dtype_of<double>), "");
    EXPECT_EQ(out.values<double>()[0], sign * (1 + 0x1p-10));
  }
  // No intermediate overflow or rounding in half.
  TestProgram product;
  const int32_t x = product.input(0);
  product.output(0, product.op("sqrt", C, product.op("mul", C, x, x)));
  const TestTensor in = TestTensor::of<sdk::Half>({2}, {60000, 1e-4});
  const TestTensor out = TestTensor::empty(in.dtype(), {2});
  ProgramArgs args;
  args.in[0] = in;
  args.out[0] = out;
  ASSERT_EQ(product.run(args, in.dtype()), "");
  EXPECT_EQ(out.values<float>(), in.values<float>());
}

TEST(InterpreterTest, ScalarsAreRoundedToTheComputeType) {
  // The float 0.1 equals the scalar 0.1 and the constant 0.1.
  TestProgram program;
  const int32_t x = program.input(0);
  program.output(0, program.op("eq", B, x, program.scalar()));
  program.output(1, program.op("eq", B, x, program.constant(0.1)));
  program.output(2, program.op("add", C, program.op("mul", C, x, program.scalar(MT_FIELD_INT)),
                               program.scalar(MT_FIELD_FLOAT)));
  const TestTensor in = TestTensor::of<float>({1}, {0.1});
  const TestTensor out0 = TestTensor::empty(sdk::dtype_of<bool>, {1});
  const TestTensor out1 = TestTensor::empty(sdk::dtype_of<bool>, {1});
  const TestTensor out2 = TestTensor::empty(sdk::dtype_of<double>, {1});
  ProgramArgs args;
  args.in[0] = in;
  args.scalar = scalar(0.1);
  args.integer = 4;
  args.real = 0.5;
  args.out[0] = out0;
  args.out[1] = out1;
  args.out[2] = out2;
  ASSERT_EQ(program.run(args, sdk::dtype_of<float>), "");
  EXPECT_TRUE(out0.values<bool>()[0]);
  EXPECT_TRUE(out1.values<bool>()[0]);
  EXPECT_EQ(out2.values<double>()[0], 4 * static_cast<double>(0.1f) + 0.5);
}

TEST(InterpreterTest, TakesStridesBroadcastsMixedDtypesNumbersAndAbsentOutputs) {
  // out[i][j] = a[i][j] (transposed, float) + b[j] (int64, every second) * c (host).
  const TestTensor a = TestTensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6}).reversed();
  const TestTensor b = TestTensor::of<int64_t>({6}, {10, -1, 20, -1, 30, -1}).as_strided({3}, {2});
  const TestTensor c = TestTensor::host<double>(0.5);
  const TestTensor out = TestTensor::empty(sdk::dtype_of<double>, {3, 2}).reversed();
  TestProgram program;
  const int32_t x = program.input(0);
  const int32_t y = program.input(1);
  const int32_t z = program.input(2);
  const int32_t product = program.op("mul", C, y, z);
  program.output(0, product);
  program.output(1, program.op("add", C, x, product));
  ProgramArgs args;
  args.in[0] = a;
  args.in[1] = b;
  args.in[2] = c;
  args.out[1] = out;
  ASSERT_EQ(program.run(args, sdk::dtype_of<float>), "");
  EXPECT_EQ(out.values<double>(), (std::vector<double>{6, 13, 20, 7, 14, 21}));
}

TEST(InterpreterTest, TakesAliasesEmptyAndZeroDimTensors) {
  TestProgram swap;
  const int32_t a = swap.input(0);
  const int32_t b = swap.input(1);
  swap.output(0, b).output(1, a);
  const TestTensor x = TestTensor::of<float>({2}, {1, 2});
  const TestTensor y = TestTensor::of<float>({2}, {3, 4});
  ProgramArgs args;
  args.in[0] = args.out[0] = x;
  args.in[1] = args.out[1] = y;
  ASSERT_EQ(swap.run(args, x.dtype()), "");
  EXPECT_EQ(x.values<float>(), (std::vector<float>{3, 4}));
  EXPECT_EQ(y.values<float>(), (std::vector<float>{1, 2}));

  TestProgram neg;
  neg.output(0, neg.op("neg", C, neg.input(0)));
  const TestTensor none = TestTensor::empty(x.dtype(), {3, 0});
  ProgramArgs empty;
  empty.in[0] = empty.out[0] = none;
  EXPECT_EQ(neg.run(empty, x.dtype()), "");
  const TestTensor one = TestTensor::of<float>({}, {2});
  ProgramArgs zero_dim;
  zero_dim.in[0] = zero_dim.out[0] = one;
  EXPECT_EQ(neg.run(zero_dim, x.dtype()), "");
  EXPECT_EQ(one.values<float>()[0], -2);
}

TEST(InterpreterTest, UnknownOperationsAreDeclined) {
  TestProgram program;
  program.output(0, program.op("frobnicate", C, program.input(0)));
  ProgramArgs args;
  EXPECT_EQ(program.run(args, sdk::dtype_of<float>),
            "compile: status " + std::to_string(MT_DECLINED));
}

}  // namespace
}  // namespace mytorch::testing
