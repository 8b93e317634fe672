// Accuracy of the elementary functions over the whole range of inputs, compared with libm in a
// wider type, on every instruction set of this CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/backends/cpu-openmp/simd_math_test.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "backends/cpu-openmp/simd/highway.h"
#include "cpu/elementary.h"

// name, reference in a wider type, largest error in ulp for float and for double. The elementary
// functions are those of the records, with the errors that they promise.
#ifndef MYTORCH_SIMD_UNARY_LIST
#define MYTORCH_SIMD_UNARY_LIST(X)                                         \
  MYTORCH_ELEMENTARY(X)                                                    \
  X(Ndtr, 0.5L * std::erfc(x * -0.70710678118654752440L), 5, 4.5)          \
  X(Log1pExp, (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x))), 3, 3) \
  X(TanhSoftplus, std::tanh(std::log1p(std::exp(x))), 4, 4)
#endif

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

#define MYTORCH_SIMD_LOOP(Name, reference, f32_ulp, f64_ulp)                   \
  template <typename T>                                                        \
  void Run##Name(const T* from, T* to, size_t n) {                             \
    const hn::ScalableTag<T> d;                                                \
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {                             \
      hn::StoreU(Node##Name(d, hn::LoadU(d, from + i)), d, to + i);            \
    }                                                                          \
  }                                                                            \
  void Float##Name(const float* x, float* y, size_t n) { Run##Name(x, y, n); } \
  void Double##Name(const double* x, double* y, size_t n) { Run##Name(x, y, n); }
MYTORCH_SIMD_UNARY_LIST(MYTORCH_SIMD_LOOP)
#undef MYTORCH_SIMD_LOOP

template <typename T>
void RunPow(const T* a, const T* b, T* to, size_t n) {
  const hn::ScalableTag<T> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(NodePow(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, to + i);
  }
}
void FloatPowLoop(const float* a, const float* b, float* to, size_t n) { RunPow(a, b, to, n); }
void DoublePowLoop(const double* a, const double* b, double* to, size_t n) { RunPow(a, b, to, n); }

void FloatTwiceNormalCdf(const float* x, float* y, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(NodeTwiceNormalCdf(d, hn::LoadU(d, x + i)), d, y + i);
  }
}

void FloatErfinvLoop(const float* x, float* y, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(FloatErfinv(d, hn::LoadU(d, x + i)), d, y + i);
  }
}
void FloatNdtriLoop(const float* x, float* y, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(FloatNdtri(d, hn::LoadU(d, x + i)), d, y + i);
  }
}

void FloatAtan2Loop(const float* a, const float* b, float* to, size_t n) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(NodeAtan2(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, to + i);
  }
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::simd {

// The elementary functions in double and in long double: the library's and, by the same names,
// those that it lacks.
namespace libm {
using namespace std;  // NOLINT(google-build-using-namespace)
template <typename W>
W rsqrt(W x) {
  return 1 / std::sqrt(x);
}
template <typename W>
W sigmoid(W x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
}  // namespace libm

namespace {

#define MYTORCH_SIMD_EXPORT(Name, reference, f32_ulp, f64_ulp) \
  HWY_EXPORT(Float##Name);                                     \
  HWY_EXPORT(Double##Name);
MYTORCH_SIMD_UNARY_LIST(MYTORCH_SIMD_EXPORT)
HWY_EXPORT(FloatPowLoop);
HWY_EXPORT(DoublePowLoop);
HWY_EXPORT(FloatAtan2Loop);
HWY_EXPORT(FloatTwiceNormalCdf);
HWY_EXPORT(FloatErfinvLoop);
HWY_EXPORT(FloatNdtriLoop);

// |got - want| in units of the last place of T at `want`. The sign of zero and the class of the
// result must agree exactly; infinity counts as the number after the largest.
template <typename T, typename W>
double UlpError(T got, W want) {
  using Limits = std::numeric_limits<T>;
  constexpr double wrong = 1e30;
  if (std::isnan(want)) return std::isnan(got) ? 0 : wrong;
  if (std::isnan(got)) return wrong;
  if (got == 0 && want == 0) return std::signbit(got) == std::signbit(want) ? 0 : wrong;
  const W after_largest = std::ldexp(W(1), Limits::max_exponent);
  if (std::isinf(want) || std::fabs(want) > after_largest)
    want = std::copysign(after_largest, want);
  const W value = std::isinf(got) ? std::copysign(after_largest, W(got)) : W(got);
  int exponent;
  std::frexp(want, &exponent);
  exponent = std::min(std::max(exponent, Limits::min_exponent), Limits::max_exponent);
  return static_cast<double>(std::fabs(value - want) / std::ldexp(W(1), exponent - Limits::digits));
}

// The special cases of the functions, then random bit patterns, then numbers of moderate magnitude.
// The length is a multiple of every vector length.
template <typename T>
std::vector<T> Inputs(size_t count) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  using Limits = std::numeric_limits<T>;
  std::vector<T> x = {T(0),
                      Limits::infinity(),
                      Limits::quiet_NaN(),
                      Limits::denorm_min(),
                      Limits::min(),
                      Limits::max(),
                      T(1),
                      T(0.5),
                      T(2),
                      T(1e10),
                      T(88.72),
                      T(88.73),
                      T(103.9),
                      T(104),
                      T(709.78),
                      T(709.79),
                      T(710.4758),
                      T(745.13),
                      T(745.14),
                      T(89.4159),
                      T(1e-5),
                      T(128),
                      T(149),
                      T(150),
                      T(1024),
                      T(1075),
                      T(20),
                      T(0.92),
                      T(9.02),
                      T(10.06),
                      T(27.2),
                      T(9999.5),
                      T(10000.5),
                      T(1e22),
                      T(1e30),
                      std::nextafter(T(1), T(0)),
                      std::nextafter(T(1), T(2)),
                      T(1.5707964),
                      T(3.1415927),
                      T(0x1p28),
                      T(0x1p56),
                      T(0.3333333),
                      T(0.6666666)};
  for (size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i]);
  uint64_t state = 0x9e3779b97f4a7c15ull;
  while (x.size() < count) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const uint64_t mixed = state ^ (state >> 29);
    // Adding zero quiets signalling NaN, which libm and IEEE pow treat differently.
    x.push_back(std::bit_cast<T>(static_cast<Bits>(mixed)) + T(0));
    const T unit = static_cast<T>((state >> 11) * 0x1p-53);
    x.push_back(unit * 2 - 1);
    x.push_back((unit * 2 - 1) * 10);
    x.push_back((unit * 2 - 1) * 100);
  }
  x.resize(count / 64 * 64);
  return x;
}

template <typename T>
using Wider = std::conditional_t<sizeof(T) == 4, double, long double>;
template <typename T>
void ExpectAccurate(const char* name, void (*run)(const T*, T*, size_t),
                    Wider<T> (*reference)(Wider<T>), double limit) {
  const std::vector<T> x = Inputs<T>(sizeof(T) == 4 ? 400000 : 100000);
  std::vector<T> y(x.size());
  run(x.data(), y.data(), x.size());
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = UlpError(y[i], reference(x[i]));
    if (error > worst) worst = error, at = i;
  }
  EXPECT_LE(worst, limit) << name << "(" << x[at] << ") = " << y[at] << ", expected "
                          << reference(x[at]);
}

class SimdMath : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

#define MYTORCH_SIMD_TEST(Name, reference, f32_ulp, f64_ulp)                                    \
  TEST_P(SimdMath, Name##IsAccurate) {                                                          \
    ExpectAccurate<float>(                                                                      \
        #Name, HWY_DYNAMIC_DISPATCH(Float##Name), [](double x) -> double { return reference; }, \
        f32_ulp);                                                                               \
    ExpectAccurate<double>(                                                                     \
        #Name, HWY_DYNAMIC_DISPATCH(Double##Name),                                              \
        [](long double x) -> long double { return reference; }, f64_ulp);                       \
  }
MYTORCH_SIMD_UNARY_LIST(MYTORCH_SIMD_TEST)

// Every pair of special values, and random pairs.
template <typename T>
void BinaryInputs(std::vector<T>* a, std::vector<T>* b) {
  using Limits = std::numeric_limits<T>;
  const T inf = Limits::infinity();
  const std::vector<T> special = {0,
                                  -T(0),
                                  inf,
                                  -inf,
                                  Limits::quiet_NaN(),
                                  1,
                                  -1,
                                  2,
                                  -2,
                                  T(0.5),
                                  T(-0.5),
                                  3,
                                  -3,
                                  Limits::denorm_min(),
                                  -Limits::denorm_min(),
                                  Limits::max(),
                                  -Limits::max(),
                                  Limits::min(),
                                  T(16777215),
                                  T(16777217),
                                  T(-16777215),
                                  T(8388607.5),
                                  T(1e10),
                                  T(-1e10),
                                  7,
                                  -7,
                                  T(0.1),
                                  T(-0.1),
                                  T(1.00001),
                                  T(0.99999),
                                  T(2.5),
                                  T(-2.5)};
  for (T p : special) {
    for (T q : special) a->push_back(p), b->push_back(q);
  }
  const std::vector<T> x = Inputs<T>(65536);
  for (size_t i = 0; i < x.size(); ++i) {
    a->push_back(x[i]);
    b->push_back(x[(i * 7 + i / 4 + 3) % x.size()]);
  }
}

TEST_P(SimdMath, PowIsWithinOneUlp) {
  std::vector<float> a, b;
  BinaryInputs(&a, &b);
  std::vector<float> y(a.size());
  HWY_DYNAMIC_DISPATCH(FloatPowLoop)(a.data(), b.data(), y.data(), a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(UlpError(y[i], std::pow(double{a[i]}, double{b[i]})), 1)
        << "pow(" << a[i] << ", " << b[i] << ") = " << y[i];
  }
}

TEST_P(SimdMath, PowOfDoublesIsWithinOneAndAHalfUlp) {
  std::vector<double> a, b;
  BinaryInputs(&a, &b);
  std::vector<double> y(a.size());
  HWY_DYNAMIC_DISPATCH(DoublePowLoop)(a.data(), b.data(), y.data(), a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(
        UlpError(y[i], std::pow(static_cast<long double>(a[i]), static_cast<long double>(b[i]))),
        1.5)
        << "pow(" << a[i] << ", " << b[i] << ") = " << y[i];
  }
}

TEST_P(SimdMath, Atan2IsWithinTwoUlp) {
  std::vector<float> a, b;
  BinaryInputs(&a, &b);
  std::vector<float> y(a.size());
  HWY_DYNAMIC_DISPATCH(FloatAtan2Loop)(a.data(), b.data(), y.data(), a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(UlpError(y[i], std::atan2(double{a[i]}, double{b[i]})), 2)
        << "atan2(" << a[i] << ", " << b[i] << ") = " << y[i];
  }
}

// Near 0 the result has only the few digits of 1 + erf.
TEST_P(SimdMath, TwiceNormalCdfIsAccurateAndSaturates) {
  std::vector<float> x = Inputs<float>(400000);
  for (size_t i = 0; i < 100000; ++i) x[i + 1000] = static_cast<float>(i) * 12e-5f - 6;
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(FloatTwiceNormalCdf)(x.data(), y.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::erfc(x[i] * -0.70710678118654752440);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(y[i]));
    } else {
      ASSERT_NEAR(y[i], want, 4e-7) << x[i];
      if (std::abs(x[i]) > 5.7f) {
        ASSERT_EQ(y[i], x[i] > 0 ? 2.0f : 0.0f) << x[i];
      }
    }
  }
}

// The inverse of an increasing function of doubles lies between neighbors of a result: the fourth,
// or the eighth without fused multiply-add.
template <class F>
void ExpectInverse(int64_t target, float x, float y, const F& function) {
  const int steps = target == HWY_SCALAR ? 8 : 4;
  const auto moved = [&](float to) {
    float z = y;
    for (int i = 0; i < steps; ++i) z = std::nextafter(z, to);
    return double{z};
  };
  const float inf = std::numeric_limits<float>::infinity();
  ASSERT_LE(function(moved(-inf)), double{x}) << x << ": " << y;
  ASSERT_GE(function(moved(inf)), double{x}) << x << ": " << y;
}

TEST_P(SimdMath, ErfinvIsWithinAFewUlp) {
  std::vector<float> x = Inputs<float>(400000);
  for (size_t i = 0; i < 1000; ++i) x[i + 1000] = 1 - static_cast<float>(i) * 0x1p-24f;
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(FloatErfinvLoop)(x.data(), y.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    if (!(std::abs(x[i]) <= 1)) {
      ASSERT_TRUE(std::isnan(y[i])) << x[i];
    } else if (std::abs(x[i]) == 1) {
      ASSERT_EQ(y[i], x[i] * std::numeric_limits<float>::infinity());
    } else {
      ASSERT_EQ(std::signbit(y[i]), std::signbit(x[i])) << x[i];
      ASSERT_NO_FATAL_FAILURE(
          ExpectInverse(GetParam(), x[i], y[i], [](double v) { return std::erf(v); }));
    }
  }
}

TEST_P(SimdMath, NdtriIsWithinAFewUlp) {
  std::vector<float> x = Inputs<float>(400000);
  for (size_t i = 1000; i < x.size(); ++i) x[i] = std::abs(x[i]);
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(FloatNdtriLoop)(x.data(), y.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    if (!(x[i] >= 0 && x[i] <= 1)) {
      ASSERT_TRUE(std::isnan(y[i])) << x[i];
    } else if (x[i] == 0 || x[i] == 1) {
      ASSERT_EQ(y[i], (x[i] - 0.5f) * std::numeric_limits<float>::infinity());
    } else {
      const auto ndtr = [](double v) { return 0.5 * std::erfc(v * -0.70710678118654752440); };
      ASSERT_NO_FATAL_FAILURE(ExpectInverse(GetParam(), x[i], y[i], ndtr));
    }
  }
}

// Results must never leave the function's range: log(1 - tanh(x)) must not become NaN.
TEST_P(SimdMath, ResultsStayInTheRangeOfTheFunction) {
  const std::vector<float> x = Inputs<float>(400000);
  std::vector<float> y(x.size());
  const auto check = [&](const char* name, float low, float high) {
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_FALSE(y[i] < low || y[i] > high) << name << "(" << x[i] << ") = " << y[i];
    }
  };
  HWY_DYNAMIC_DISPATCH(FloatTanh)(x.data(), y.data(), x.size());
  check("tanh", -1, 1);
  HWY_DYNAMIC_DISPATCH(FloatErf)(x.data(), y.data(), x.size());
  check("erf", -1, 1);
  HWY_DYNAMIC_DISPATCH(FloatSin)(x.data(), y.data(), x.size());
  check("sin", -1, 1);
  HWY_DYNAMIC_DISPATCH(FloatCos)(x.data(), y.data(), x.size());
  check("cos", -1, 1);
  HWY_DYNAMIC_DISPATCH(FloatSigmoid)(x.data(), y.data(), x.size());
  check("sigmoid", 0, 1);
}

INSTANTIATE_TEST_SUITE_P(Targets, SimdMath,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

}  // namespace
}  // namespace mytorch::simd
#endif  // HWY_ONCE
