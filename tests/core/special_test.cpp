// The special functions of float32 against those of float64, whose digits
// codegen/tests/test_special.py checks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mytorch/mytorch.h"
#include "tests/core/random_seed.h"

namespace mytorch {
namespace {

using UnaryFunction = Tensor (*)(const Tensor&);

struct SpecialCase {
  const char* name;
  UnaryFunction function;
  double low, high;
  double ulp;    // largest error in units in the last place
  double scale;  // of numbers of this size at least: near a zero, terms of that size cancel
};

const SpecialCase kCases[] = {
    {"lgamma", lgamma, 0.01, 40, 4, 1},
    {"digamma", digamma, 0.01, 40, 4, 1},
    {"erfcx", special_erfcx, -3, 100, 4, 0},
    {"log_ndtr", special_log_ndtr, -20, 6, 6, 0},
    {"ndtr", special_ndtr, -13, 8, 6, 0},
    {"ndtri", special_ndtri, 0, 1, 4, 0},
    {"erfinv", erfinv, -1, 1, 4, 0},
    {"i0e", special_i0e, -30, 30, 4, 0},
    {"i0", i0, -30, 30, 8, 0},
    {"i1e", special_i1e, -30, 30, 8, 0},
    {"i1", special_i1, -30, 30, 12, 0},
    {"k0", special_modified_bessel_k0, 0.01, 30, 10, 0},
    {"k1", special_modified_bessel_k1, 0.01, 30, 10, 0},
    {"k0e", special_scaled_modified_bessel_k0, 0.01, 30, 10, 0},
    {"k1e", special_scaled_modified_bessel_k1, 0.01, 30, 10, 0},
    {"j0", special_bessel_j0, -30, 30, 8, 1},
    {"j1", special_bessel_j1, -30, 30, 8, 1},
    {"y0", special_bessel_y0, 0.1, 30, 10, 1},
    {"y1", special_bessel_y1, 0.1, 30, 10, 1},
    {"airy_ai", special_airy_ai, -8, 8, 48, 0.3},
};

double unit(double value) {
  int exponent;
  std::frexp(std::max(std::abs(value), double{std::numeric_limits<float>::min()}), &exponent);
  return std::ldexp(1.0, exponent - std::numeric_limits<float>::digits);
}

struct Worst {
  double error = 0;  // in units in the last place; infinite where only one of the two is a NaN
  int64_t at = 0;
};

// Compares with numbers of double precision. Near a zero, units are those of `scale`.
Worst worst_of(const Tensor& got, const Tensor& want, double scale) {
  const float* const g = got.data_ptr<float>();
  const double* const w = want.data_ptr<double>();
  Worst worst;
  for (int64_t i = 0; i < got.numel(); ++i) {
    if (g[i] == w[i] || (std::isnan(g[i]) && std::isnan(w[i]))) continue;
    double error = std::abs(g[i] - w[i]) / unit(std::max(std::abs(w[i]), scale));
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    if (error > worst.error) worst = {error, i};
  }
  return worst;
}

TEST(SpecialFunctions, Float32HasItsDigits) {
  const uint64_t seed = testing::random_seed();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  manual_seed(seed);
  for (const SpecialCase& c : kCases) {
    const Tensor x = (rand({50000}) * (c.high - c.low) + c.low).to(kFloat32);
    const Tensor got = c.function(x), want = c.function(x.to(kFloat64));
    const Worst worst = worst_of(got, want, c.scale);
    EXPECT_LE(worst.error, c.ulp) << c.name << "(" << x.data_ptr<float>()[worst.at]
                                  << ") = " << got.data_ptr<float>()[worst.at] << ", expected "
                                  << want.data_ptr<double>()[worst.at];
  }
}

TEST(SpecialFunctions, IncompleteGammasOfFloat32HaveTheirDigits) {
  const uint64_t seed = testing::random_seed();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  manual_seed(seed);
  // Arguments of every size, and close to each other.
  const Tensor a = (rand({60000}) * 14 - 7).exp().to(kFloat32);
  const Tensor x = (a * (randn({60000}) / a.clamp(1).sqrt()).exp()).to(kFloat32);
  for (const bool complement : {false, true}) {
    const Tensor got = incomplete_gamma(a, x, complement);
    const Tensor want = incomplete_gamma(a.to(kFloat64), x.to(kFloat64), complement);
    const Worst worst = worst_of(got, want, 0);
    EXPECT_LE(worst.error, 8) << complement << " " << a.data_ptr<float>()[worst.at] << ", "
                              << x.data_ptr<float>()[worst.at] << ": "
                              << got.data_ptr<float>()[worst.at] << ", expected "
                              << want.data_ptr<double>()[worst.at];
  }
}

}  // namespace
}  // namespace mytorch
