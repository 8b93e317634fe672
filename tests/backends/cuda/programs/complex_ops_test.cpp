// Compares the device's functions of complex values, compiled for the host, with std::complex<long
// double>, on special and on random values. Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/backends/cuda/programs/host_device.h"
#include "tests/core/random_seed.h"

namespace device {
#include "backends/cuda/programs/prelude.cuh"
// Follows it.
#include "backends/cuda/programs/node_ops.cuh"
// Follows both.
#include "backends/cuda/programs/complex.cuh"
}  // namespace device

namespace mytorch {
namespace {

using Exact = std::complex<long double>;
namespace node = device::node;
constexpr long double kLn2 = 0.693147180559945309417232121458176568L;

Exact expm1(Exact z) {
  const long double half = std::sin(z.imag() / 2);
  return {std::expm1(z.real()) * std::cos(z.imag()) - 2 * half * half,
          std::exp(z.real()) * std::sin(z.imag())};
}
Exact log1p(Exact z) {
  const long double x = z.real();
  const long double y = z.imag();
  if (std::abs(z) < 0.5L) return {std::log1p(x * (2 + x) + y * y) / 2, std::atan2(y, 1 + x)};
  return std::log(Exact(1 + x, y));
}
Exact sigmoid(Exact z) {
  const long double half = std::cos(z.imag() / 2);
  const long double more = std::expm1(-z.real());
  return Exact(1) /
         Exact(2 * half * half + more * std::cos(z.imag()), -(1 + more) * std::sin(z.imag()));
}
Exact power(Exact a, Exact b) { return b == Exact(0) ? Exact(1) : std::exp(b * std::log(a)); }

template <class R>
struct Row {
  const char* name;
  device::Complex<R> (*ours)(device::Complex<R>, device::Complex<R>);
  Exact (*exact)(Exact, Exact);
  bool limits = true;  // agrees at infinities and NaN, too
};

template <class R>
std::vector<Row<R>> rows() {
  using Z = device::Complex<R>;
#define ONE(name)                                                                                \
  {                                                                                              \
#name, [](Z a, Z) { return node::name(a); },                                                 \
                                              [](Exact a, Exact) { return Exact(std::name(a)); } \
  }
#define OWN(name, value, ...)                                                                    \
  {                                                                                              \
#name, [](Z a, Z) { return node::name(a); }, [](Exact a,                                     \
                                                    Exact) { return Exact(value); }, __VA_ARGS__ \
  }
#define TWO(name, value)                                                                          \
  {                                                                                               \
#name, [](Z a, Z b) { return node::name(a, b); }, [](Exact a,                                 \
                                                         Exact b) { return Exact(value); }, false \
  }
  return {
      ONE(sqrt),
      ONE(exp),
      ONE(log),
      ONE(log10),
      ONE(sin),
      ONE(cos),
      ONE(tan),
      ONE(asin),
      ONE(acos),
      ONE(atan),
      ONE(sinh),
      ONE(cosh),
      ONE(tanh),
      ONE(asinh),
      ONE(acosh),
      ONE(atanh),
      ONE(abs),
      OWN(exp2, std::exp(a * kLn2), false),
      OWN(expm1, expm1(a), false),
      OWN(log1p, log1p(a), false),
      OWN(log2, std::log(a) / kLn2, false),
      OWN(rsqrt, Exact(1) / std::sqrt(a), false),
      OWN(sigmoid, sigmoid(a), false),
      OWN(sign, std::abs(a) == 0 ? Exact(0) : a / std::abs(a), false),
      OWN(neg, -a, true),
      OWN(conj_physical, std::conj(a), true),
      TWO(add, a + b),
      TWO(sub, a - b),
      TWO(mul, a * b),
      TWO(div, a / b),
      TWO(pow, power(a, b)),
  };
#undef ONE
#undef OWN
#undef TWO
}

// `other`: the other part of the exact value. The sign of an infinity beside NaN is unspecified.
bool agree(long double ours, long double exact, long double other, long double allowed) {
  if (std::isnan(exact)) return std::isnan(ours);
  if (std::isinf(exact)) return std::isnan(other) ? std::isinf(ours) : ours == exact;
  return std::abs(ours - exact) <= allowed;
}

template <class R>
class ComplexOps : public ::testing::Test {};
using Parts = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ComplexOps, Parts);

template <class R>
std::vector<std::complex<R>> special_values() {
  const R inf = std::numeric_limits<R>::infinity();
  const R parts[] = {0,
                     R(-0.0),
                     1,
                     -1,
                     R(0.5),
                     R(1e-6),
                     R(-3.25),
                     30,
                     inf,
                     -inf,
                     std::numeric_limits<R>::quiet_NaN()};
  std::vector<std::complex<R>> values;
  for (const R re : parts) {
    for (const R im : parts) values.push_back({re, im});
  }
  return values;
}

template <class R>
void compare(const Row<R>& row, std::complex<R> a, std::complex<R> b, long double ulps) {
  const Exact exact = row.exact(Exact(a), Exact(b));
  const device::Complex<R> ours = row.ours({a.real(), a.imag()}, {b.real(), b.imag()});
  constexpr long double most = std::numeric_limits<R>::max();
  const auto rounded = [&](long double x) {
    return std::abs(x) > most && !std::isnan(x)
               ? std::copysign(std::numeric_limits<long double>::infinity(), x)
               : x;
  };
  const long double size = std::abs(exact);
  const long double allowed =
      ulps * std::numeric_limits<R>::epsilon() * (std::isfinite(size) ? size : 1) +
      std::numeric_limits<R>::denorm_min();
  EXPECT_TRUE(agree(ours.re, rounded(exact.real()), exact.imag(), allowed) &&
              agree(ours.im, rounded(exact.imag()), exact.real(), allowed))
      << row.name << " of " << a << ", " << b << " is (" << ours.re << "," << ours.im
      << "), exactly " << exact;
}

TYPED_TEST(ComplexOps, HaveTheLimitsOfC) {
  using R = TypeParam;
  for (const Row<R>& row : rows<R>()) {
    for (const auto& z : special_values<R>()) {
      const bool finite = std::isfinite(z.real()) && std::isfinite(z.imag());
      if (!row.limits && !finite) continue;
      if (row.limits || finite) compare<R>(row, z, {R(1.5), R(-0.5)}, 16);
    }
  }
}

TYPED_TEST(ComplexOps, AreExactToAFewUlps) {
  using R = TypeParam;
  const uint64_t seed = testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> exponent(-8, 6);
  std::uniform_real_distribution<double> unit(-1, 1);
  const auto part = [&] { return static_cast<R>(unit(random) * std::exp2(exponent(random))); };
  for (const Row<R>& row : rows<R>()) {
    const std::string name = row.name;
    // The rounding of an argument of exp grows with the argument.
    const long double ulps = name == "pow" || name == "exp2" ? 400 : 8;
    for (int i = 0; i < 4000; ++i) {
      const auto small = [&] { return static_cast<R>(2 * unit(random)); };
      compare<R>(row, {part(), part()}, {small(), small()}, ulps);
      // Near the unit circle, where logarithms are small.
      const double angle = unit(random) * 3.14159;
      compare<R>(row, {static_cast<R>(std::cos(angle)), static_cast<R>(std::sin(angle))},
                 {R(0.75), R(-2)}, ulps);
      // Near poles: i pi of the sigmoid, half of it of the tangents.
      const auto near = [&](double at) {
        return std::complex<R>(static_cast<R>(small() * std::exp2(-30 + exponent(random))),
                               static_cast<R>(at + small() * std::exp2(-30 + exponent(random))));
      };
      compare<R>(row, near(3.141592653589793), {R(0.75), R(-2)}, ulps);
      compare<R>(row, near(1.5707963267948966), {R(0.75), R(-2)}, ulps);
    }
  }
}

// Magnitudes at the ends of the type.
TYPED_TEST(ComplexOps, NeitherOverflowNorUnderflowOnTheWay) {
  using R = TypeParam;
  const R sizes[] = {std::numeric_limits<R>::max() / 4, std::numeric_limits<R>::min() * 4};
  for (const Row<R>& row : rows<R>()) {
    const std::string name = row.name;
    // Products overflow, and angles of such size have no meaning.
    if (name == "mul" || name == "pow" || name == "exp2" || name == "tan" || name == "sin" ||
        name == "cos")
      continue;
    for (const R size : sizes) {
      for (const auto& direction : {std::complex<R>(1, R(0.5)), std::complex<R>(R(-0.5), 1)}) {
        compare<R>(row, direction * size, {size, size}, 16);
      }
    }
  }
}

}  // namespace
}  // namespace mytorch
