// Arithmetic, division, comparison, bitwise operations and selection: exact results and PyTorch's
// conventions for NaN, signs, shifts and integer powers, on every instruction set of this CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/backends/cpu-openmp/simd_arith_test.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "backends/cpu-openmp/simd/highway.h"

// The bodies of the tested loops. NodeFromMask converts masks to 1 and 0.
#ifndef MYTORCH_SIMD_ARITH_LISTS
// clang-format never settles on these lists.
// clang-format off
#define MYTORCH_SIMD_ARITH_LISTS
#define MYTORCH_SIMD_COMMON_LIST(X)                                                                \
  X(Add, NodeAdd(d, a, b))                                                                         \
  X(Sub, NodeSub(d, a, b))                                                                         \
  X(Mul, NodeMul(d, a, b))                                                                         \
  X(Neg, NodeNeg(d, a))                                                                            \
  X(Abs, NodeAbs(d, a))                                                                            \
  X(Sign, NodeSign(d, a)) X(Maximum, NodeMaximum(d, a, b)) X(Minimum, NodeMinimum(d, a, b)) X(     \
      Fmod, NodeFmod(d, a, b)) X(Remainder, NodeRemainder(d, a, b))                                \
      X(TruncDivide, NodeTruncDivide(d, a, b)) X(FloorDivide, NodeFloorDivide(d, a, b)) X(         \
          Floor, NodeFloor(d, a)) X(Ceil, NodeCeil(d, a)) X(Trunc, NodeTrunc(d, a))                \
          X(Round, NodeRound(d, a)) X(Eq, NodeFromMask(d, NodeEq(d, a, b))) X(                     \
              Ne, NodeFromMask(d, NodeNe(d, a, b))) X(Lt, NodeFromMask(d, NodeLt(d, a, b)))        \
              X(Le, NodeFromMask(d, NodeLe(d, a, b))) X(Gt, NodeFromMask(d, NodeGt(d, a, b))) X(   \
                  Ge, NodeFromMask(d, NodeGe(d, a, b))) X(Isnan, NodeFromMask(d, NodeIsnan(d, a))) \
                  X(And, NodeFromMask(d, NodeLogicalAnd(d, NodeToMask(d, a), NodeToMask(d, b))))   \
                      X(Or, NodeFromMask(d, NodeLogicalOr(d, NodeToMask(d, a), NodeToMask(d, b)))) \
                          X(Xor, NodeFromMask(                                                     \
                                     d, NodeLogicalXor(d, NodeToMask(d, a), NodeToMask(d, b))))    \
                              X(Not, NodeFromMask(d, NodeLogicalNot(d, NodeToMask(d, a))))         \
                                  X(Where, NodeWhere(d, NodeLt(d, a, b), a, b))                    \
                                      X(AnyZero, hn::Set(d, AnyZero(d, b) ? 1 : 0))
#define MYTORCH_SIMD_FLOAT_LIST(X) \
  X(Div, NodeDiv(d, a, b)) X(Sqrt, NodeSqrt(d, a)) X(Rsqrt, NodeRsqrt(d, a))
#define MYTORCH_SIMD_INT_LIST(X)         \
  X(Pow, NodePow(d, a, b))               \
  X(BitwiseAnd, NodeBitwiseAnd(d, a, b)) \
  X(BitwiseOr, NodeBitwiseOr(d, a, b))   \
  X(BitwiseXor, NodeBitwiseXor(d, a, b)) \
  X(BitwiseNot, NodeBitwiseNot(d, a))    \
  X(ShiftLeft, NodeBitwiseLeftShift(d, a, b)) X(ShiftRight, NodeBitwiseRightShift(d, a, b))
// clang-format on
#endif

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

#define MYTORCH_SIMD_LOOP(Name, expression)  \
  struct Body##Name {                        \
    template <class D, class V>              \
    static HWY_INLINE V Run(D d, V a, V b) { \
      (void)a, (void)b;                      \
      return expression;                     \
    }                                        \
  };
MYTORCH_SIMD_COMMON_LIST(MYTORCH_SIMD_LOOP)
MYTORCH_SIMD_FLOAT_LIST(MYTORCH_SIMD_LOOP)
MYTORCH_SIMD_INT_LIST(MYTORCH_SIMD_LOOP)

// Loads each pair into all lanes of a vector, so that a rare input affects only its own result.
template <class Body, typename T>
void Loop(const T* a, const T* b, T* to, size_t n) {
  const hn::ScalableTag<T> d;
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  for (size_t i = 0; i < n; ++i) {
    hn::Store(Body::Run(d, hn::Set(d, a[i]), hn::Set(d, b[i])), d, lanes);
    to[i] = lanes[hn::Lanes(d) - 1];
  }
}

#define MYTORCH_SIMD_FUNCTION(Name, expression, T) \
  void Name##_##T(const T* a, const T* b, T* to, size_t n) { Loop<Body##Name>(a, b, to, n); }
#define MYTORCH_SIMD_FLOATS(Name, expression)    \
  MYTORCH_SIMD_FUNCTION(Name, expression, float) \
  MYTORCH_SIMD_FUNCTION(Name, expression, double)
#define MYTORCH_SIMD_INTS(Name, expression)        \
  MYTORCH_SIMD_FUNCTION(Name, expression, int32_t) \
  MYTORCH_SIMD_FUNCTION(Name, expression, int64_t)
MYTORCH_SIMD_COMMON_LIST(MYTORCH_SIMD_FLOATS)
MYTORCH_SIMD_COMMON_LIST(MYTORCH_SIMD_INTS)
MYTORCH_SIMD_FLOAT_LIST(MYTORCH_SIMD_FLOATS)
MYTORCH_SIMD_INT_LIST(MYTORCH_SIMD_INTS)
#undef MYTORCH_SIMD_LOOP
#undef MYTORCH_SIMD_FUNCTION
#undef MYTORCH_SIMD_FLOATS
#undef MYTORCH_SIMD_INTS

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::simd {
namespace {

#define MYTORCH_SIMD_FLOATS(Name, expression) \
  HWY_EXPORT(Name##_float);                   \
  HWY_EXPORT(Name##_double);
#define MYTORCH_SIMD_INTS(Name, expression) \
  HWY_EXPORT(Name##_int32_t);               \
  HWY_EXPORT(Name##_int64_t);
MYTORCH_SIMD_COMMON_LIST(MYTORCH_SIMD_FLOATS)
MYTORCH_SIMD_COMMON_LIST(MYTORCH_SIMD_INTS)
MYTORCH_SIMD_FLOAT_LIST(MYTORCH_SIMD_FLOATS)
MYTORCH_SIMD_INT_LIST(MYTORCH_SIMD_INTS)

template <typename T>
std::vector<T> values() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> v = {0, 1, 2, 3, 5, 7, 10, 13, 31, 32, 33, 63, 64, 65, 100, 1000003};
  if constexpr (std::is_floating_point_v<T>) {
    for (T x : {T(0.5), T(1.5), T(2.5), T(0.1), T(0.3), T(1e-30), T(3e38), T(1e-38), T(16777217),
                T(1e10), T(123456.789), Limits::min(), Limits::denorm_min(), Limits::max(),
                Limits::infinity(), Limits::quiet_NaN(), std::nextafter(T(3), T(0))}) {
      v.push_back(x);
    }
  } else {
    v.push_back(Limits::max());
    v.push_back(Limits::max() - 1);
    v.push_back(Limits::max() / 2 + 1);
    v.push_back(Limits::min());
    v.push_back(T(46341));
  }
  for (size_t i = 0, n = v.size(); i < n; ++i) {
    if (std::is_floating_point_v<T> || v[i] != Limits::min()) v.push_back(static_cast<T>(-v[i]));
  }
  uint64_t state = 7;
  for (int i = 0; i < 60; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    v.push_back(static_cast<T>(static_cast<int64_t>(state) >> (i % 64)));
  }
  return v;
}

template <typename T>
bool same(T got, T want) {
  if (want != want) return got != got;
  return got == want &&
         std::signbit(static_cast<double>(got)) == std::signbit(static_cast<double>(want));
}

// Compares with `reference` for every pair of values on which it is defined (not an integer
// division by zero).
template <typename T>
void check_pairs(const char* name, void (*run)(const T*, const T*, T*, size_t),
                 T (*reference)(T, T), bool divides) {
  std::vector<T> a, b;
  for (T p : values<T>()) {
    for (T q : values<T>()) a.push_back(p), b.push_back(q);
  }
  std::vector<T> y(a.size());
  run(a.data(), b.data(), y.data(), a.size());  // includes divisors of zero, which must not trap
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::is_integral_v<T> && divides && b[i] == 0) continue;
    const T want = reference(a[i], b[i]);
    ASSERT_TRUE(same(y[i], want)) << name << "(" << +a[i] << ", " << +b[i] << ") = " << +y[i]
                                  << ", expected " << +want;
  }
}
template <typename T, typename Reference>
void check(const char* name, void (*run)(const T*, const T*, T*, size_t), Reference,
           bool divides = false) {
  check_pairs<T>(
      name, run, [](T a, T b) { return static_cast<T>(Reference()(a, b)); }, divides);
}

template <typename T>
T wrap(unsigned __int128 x) {
  return static_cast<T>(static_cast<std::make_unsigned_t<T>>(x));
}

template <typename T>
T fmod_reference(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmod(a, b);
  } else {
    return static_cast<T>(static_cast<__int128>(a) % b);
  }
}

template <typename T>
T remainder_reference(T a, T b) {
  T r = fmod_reference(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  return r;
}

// ATen's div_floor_floating, and // of integers.
template <typename T>
T floor_divide_reference(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (b == 0) return a / b;
    const T mod = std::fmod(a, b);
    T div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
    if (div == 0) return std::copysign(T(0), a / b);
    T floor = std::floor(div);
    if (div - floor > T(0.5)) floor += 1;
    return floor;
  } else {
    __int128 q = static_cast<__int128>(a) / b;
    if (static_cast<__int128>(a) % b != 0 && (a < 0) != (b < 0)) --q;
    return wrap<T>(q);
  }
}

class SimdArith : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

#define CHECK_TYPE(Name, T, ...) \
  check<T>(#Name "." #T, HWY_DYNAMIC_DISPATCH(Name##_##T), __VA_ARGS__)
#define CHECK_FLOATS(Name, ...)         \
  CHECK_TYPE(Name, float, __VA_ARGS__); \
  CHECK_TYPE(Name, double, __VA_ARGS__)
#define CHECK_INTS(Name, ...)             \
  CHECK_TYPE(Name, int32_t, __VA_ARGS__); \
  CHECK_TYPE(Name, int64_t, __VA_ARGS__)
#define CHECK_ALL(Name, ...)       \
  CHECK_FLOATS(Name, __VA_ARGS__); \
  CHECK_INTS(Name, __VA_ARGS__)

TEST_P(SimdArith, SumsDifferencesAndProductsWrapInIntegers) {
  CHECK_FLOATS(Add, [](auto a, auto b) { return a + b; });
  CHECK_FLOATS(Sub, [](auto a, auto b) { return a - b; });
  CHECK_FLOATS(Mul, [](auto a, auto b) { return a * b; });
  CHECK_INTS(Add, []<typename T>(T a, T b) { return wrap<T>(static_cast<__int128>(a) + b); });
  CHECK_INTS(Sub, []<typename T>(T a, T b) { return wrap<T>(static_cast<__int128>(a) - b); });
  CHECK_INTS(Mul, []<typename T>(T a, T b) { return wrap<T>(static_cast<__int128>(a) * b); });
}

TEST_P(SimdArith, NegativesMagnitudesAndSignsWrapInIntegers) {
  CHECK_FLOATS(Neg, [](auto a, auto) { return -a; });
  CHECK_FLOATS(Abs, [](auto a, auto) { return std::fabs(a); });
  CHECK_INTS(Neg, []<typename T>(T a, T) { return wrap<T>(-static_cast<__int128>(a)); });
  CHECK_INTS(Abs, []<typename T>(T a, T) {
    return wrap<T>(a < 0 ? -static_cast<__int128>(a) : static_cast<__int128>(a));
  });
  CHECK_ALL(Sign, [](auto a, auto) { return (a > 0) - (a < 0); });  // 0 for NaN
}

TEST_P(SimdArith, MaximumAndMinimumKeepNan) {
  // The sign of the zero max(-0, 0) is unspecified, also in PyTorch.
  CHECK_INTS(Maximum, [](auto a, auto b) { return a > b ? a : b; });
  CHECK_INTS(Minimum, [](auto a, auto b) { return a < b ? a : b; });
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const float a[] = {nan, 1, nan, -inf, inf, nan, 2, -3};
  const float b[] = {1, nan, nan, nan, nan, inf, 3, -2};
  float high[8], low[8];
  HWY_DYNAMIC_DISPATCH(Maximum_float)(a, b, high, 8);
  HWY_DYNAMIC_DISPATCH(Minimum_float)(a, b, low, 8);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(std::isnan(high[i]) && std::isnan(low[i])) << i;
  EXPECT_EQ(high[6], 3);
  EXPECT_EQ(low[6], 2);
  EXPECT_EQ(high[7], -2);
  EXPECT_EQ(low[7], -3);
  const double da[] = {nan, 1, 5}, db[] = {1, nan, 4};
  double dhigh[3], dlow[3];
  HWY_DYNAMIC_DISPATCH(Maximum_double)(da, db, dhigh, 3);
  HWY_DYNAMIC_DISPATCH(Minimum_double)(da, db, dlow, 3);
  EXPECT_TRUE(std::isnan(dhigh[0]) && std::isnan(dhigh[1]) && std::isnan(dlow[0]) &&
              std::isnan(dlow[1]));
  EXPECT_EQ(dhigh[2], 5);
  EXPECT_EQ(dlow[2], 4);
}

TEST_P(SimdArith, QuotientsAndRemaindersFollowAtensSigns) {
  CHECK_FLOATS(Div, [](auto a, auto b) { return a / b; });
  CHECK_FLOATS(TruncDivide, [](auto a, auto b) { return std::trunc(a / b); });
  CHECK_INTS(
      TruncDivide, []<typename T>(T a, T b) { return wrap<T>(static_cast<__int128>(a) / b); },
      true);
  CHECK_ALL(
      Fmod, []<typename T>(T a, T b) { return fmod_reference(a, b); }, true);
  CHECK_ALL(
      Remainder, []<typename T>(T a, T b) { return remainder_reference(a, b); }, true);
  CHECK_ALL(
      FloorDivide, []<typename T>(T a, T b) { return floor_divide_reference(a, b); }, true);
  CHECK_ALL(AnyZero, [](auto, auto b) { return b == 0; });
}

TEST_P(SimdArith, RoundingAndRootsAreExact) {
  CHECK_FLOATS(Floor, [](auto a, auto) { return std::floor(a); });
  CHECK_FLOATS(Ceil, [](auto a, auto) { return std::ceil(a); });
  CHECK_FLOATS(Trunc, [](auto a, auto) { return std::trunc(a); });
  CHECK_FLOATS(Round, [](auto a, auto) { return std::nearbyint(a); });
  CHECK_INTS(Floor, [](auto a, auto) { return a; });
  CHECK_INTS(Ceil, [](auto a, auto) { return a; });
  CHECK_INTS(Trunc, [](auto a, auto) { return a; });
  CHECK_INTS(Round, [](auto a, auto) { return a; });
  CHECK_FLOATS(Sqrt, [](auto a, auto) { return std::sqrt(a); });
  CHECK_FLOATS(Rsqrt, [](auto a, auto) { return 1 / std::sqrt(a); });
}

TEST_P(SimdArith, ComparisonsWithNanAreFalse) {
  CHECK_ALL(Eq, [](auto a, auto b) { return a == b; });
  CHECK_ALL(Ne, [](auto a, auto b) { return a != b; });
  CHECK_ALL(Lt, [](auto a, auto b) { return a < b; });
  CHECK_ALL(Le, [](auto a, auto b) { return a <= b; });
  CHECK_ALL(Gt, [](auto a, auto b) { return a > b; });
  CHECK_ALL(Ge, [](auto a, auto b) { return a >= b; });
  CHECK_ALL(Isnan, [](auto a, auto) { return a != a; });
  CHECK_ALL(Where, [](auto a, auto b) { return a < b ? a : b; });
}

TEST_P(SimdArith, LogicTakesEveryNonzeroValueAsTrue) {
  CHECK_ALL(And, [](auto a, auto b) { return a != 0 && b != 0; });
  CHECK_ALL(Or, [](auto a, auto b) { return a != 0 || b != 0; });
  CHECK_ALL(Xor, [](auto a, auto b) { return (a != 0) != (b != 0); });
  CHECK_ALL(Not, [](auto a, auto) { return !(a != 0); });
}

TEST_P(SimdArith, BitwiseOperationsAreExact) {
  CHECK_INTS(BitwiseAnd, [](auto a, auto b) { return a & b; });
  CHECK_INTS(BitwiseOr, [](auto a, auto b) { return a | b; });
  CHECK_INTS(BitwiseXor, [](auto a, auto b) { return a ^ b; });
  CHECK_INTS(BitwiseNot, [](auto a, auto) { return ~a; });
}

TEST_P(SimdArith, ShiftsByTheWidthOrMoreKeepOnlyTheSign) {
  CHECK_INTS(ShiftLeft, []<typename T>(T a, T b) {
    if (b < 0 || b >= T(sizeof(T) * 8)) return T(0);
    return wrap<T>(static_cast<unsigned __int128>(static_cast<__int128>(a)) << b);
  });
  CHECK_INTS(ShiftRight, []<typename T>(T a, T b) {
    if (b < 0 || b >= T(sizeof(T) * 8)) return T(a < 0 ? -1 : 0);
    return T(a >> b);
  });
}

TEST_P(SimdArith, IntegerPowersWrap) {
  CHECK_INTS(Pow, []<typename T>(T a, T b) {
    if (b < 0) return T(a == 1 ? 1 : a == -1 ? (b % 2 != 0 ? -1 : 1) : 0);
    using U = std::make_unsigned_t<T>;
    U r = 1, base = static_cast<U>(a);
    for (U e = static_cast<U>(b); e != 0; e >>= 1, base *= base) {
      if (e & 1) r *= base;
    }
    return static_cast<T>(r);
  });
}

INSTANTIATE_TEST_SUITE_P(Targets, SimdArith,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

}  // namespace
}  // namespace mytorch::simd
#endif  // HWY_ONCE
