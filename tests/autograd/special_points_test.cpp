// Gradients of first and second order at zeros, poles, ties and other points where formulas that
// hold nearly everywhere divide by zero.
#include <cmath>
#include <functional>

#include "mytorch/autograd.h"
#include "mytorch/autograd/gradcheck.h"
#include "mytorch/mytorch.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

using autograd::grad;
using PointFunction = std::function<Tensor(const Tensor&)>;

// The gradient of the sum of `f`, and the gradient of the sum of the gradient.
struct Orders {
  Tensor first, second;
};

Orders orders_of(const PointFunction& f, const Tensor& at) {
  const Tensor x = at.detach().clone().requires_grad_();
  const Tensor first = grad({f(x).sum()}, {x}, {}, {.create_graph = true})[0];
  return {first.detach(), grad({first.sum()}, {x})[0]};
}

TEST(SpecialPoints, CumprodWithZeros) {
  const auto f = [](const Tensor& x) { return cumprod(x, 0); };
  EXPECT_EQ(values(orders_of(f, plain({2, 3, 0, 0})).second), (Values{4, 3, 11, 6}));
  EXPECT_EQ(values(orders_of(f, plain({0, 0, 0})).second), (Values{1, 1, 0}));
  for (const Values& x : {Values{0, 2, 0, 3, 0}, Values{1, 0, 0, 0, 2, 5, 0}, Values{0}}) {
    const auto all = [&](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{cumprod(in[0], 0)};
    };
    EXPECT_EQ(autograd::gradcheck(all, {leaf(x)}).message, "");
    EXPECT_EQ(autograd::gradgradcheck(all, {leaf(x)}).message, "");
  }
}

// The incoming gradients and the values have distinct sizes, so that no wrong term cancels.
TEST(SpecialPoints, ScatteredProductsWithZeros) {
  const Tensor index = tensor({0, 0, 1, 1}, kInt64), start = full({2}, 3.0, kFloat64);
  const Tensor weights = plain({1, 10, 100, 1000});
  const auto second = [&](const std::function<Tensor(const Tensor&)>& reduce) {
    const Tensor x = leaf({2, 0, 4, 5});
    const Tensor first = grad({reduce(x).sum()}, {x}, {}, {.create_graph = true})[0];
    return values(grad({(first * weights).sum()}, {x})[0]);
  };
  const Values expected = {30, 3, 3000, 300};
  EXPECT_EQ(
      second([&](const Tensor& x) { return scatter_reduce(start, 0, index, x, "prod", true); }),
      expected);
  EXPECT_EQ(second([&](const Tensor& x) { return index_reduce(start, 0, index, x, "prod", true); }),
            expected);
  const Tensor places = tensor({2, 0, 2, 2, 0, 1}, kInt64).reshape({2, 3});
  for (const bool include_self : {true, false}) {
    const auto f = [&](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{scatter_reduce(in[0], 1, places, in[1], "prod", include_self)};
    };
    const std::vector<Tensor> inputs = {
        leaf({0, 2, 3, 0, 5, 0, 1, 2}).reshape({2, 4}).detach().requires_grad_(),
        leaf({0, 2, 0, 0, 3, 4}).reshape({2, 3}).detach().requires_grad_()};
    EXPECT_EQ(autograd::gradcheck(f, inputs).message, "");
    EXPECT_EQ(autograd::gradgradcheck(f, inputs).message, "");
  }
}

// In float32 and float64; the references are stated in the tests.
void expect_second(const char* name, const PointFunction& f, const std::vector<double>& at,
                   const std::vector<double>& expected) {
  for (const ScalarType type : {kFloat32, kFloat64}) {
    const double tolerance = type == kFloat32 ? 1e-5 : 1e-13;
    const std::vector<double> second = values(orders_of(f, plain(at).to(type)).second);
    ASSERT_EQ(second.size(), expected.size());
    for (size_t i = 0; i < second.size(); ++i) {
      EXPECT_NEAR(second[i], expected[i], tolerance * std::fmax(1, std::fabs(expected[i])))
          << name << " at " << at[i] << ", " << type;
    }
  }
}

constexpr double kZeta2 = 1.6449340668482264, kZeta3 = 1.2020569031595942;
constexpr double kZeta4 = 1.0823232337111382, kZeta5 = 1.0369277551433699;

// psi^(n)(1) is (-1)^(n + 1) n! zeta(n + 1), and psi^(n)(x + 1) - psi^(n)(x) is (-1)^n n! / x^(n +
// 1).
TEST(SpecialPoints, GammaFunctionsAtPositiveIntegers) {
  const double psi1_half = 3 * kZeta2, psi2_half = -14 * kZeta3;  // at 1 / 2
  expect_second("lgamma", lgamma, {1, 2, 3, .5}, {kZeta2, kZeta2 - 1, kZeta2 - 1.25, psi1_half});
  expect_second("digamma", digamma, {1, 2, .5}, {-2 * kZeta3, 2 - 2 * kZeta3, psi2_half});
  expect_second("trigamma", trigamma, {1, 2}, {6 * kZeta4, 6 * kZeta4 - 6});
  expect_second("polygamma 2", [](const Tensor& x) { return polygamma(2, x); }, {1, 2},
                {-24 * kZeta5, 24 - 24 * kZeta5});
  // The sum of lgamma(x) and lgamma(x - 1 / 2).
  expect_second("mvlgamma", [](const Tensor& x) { return mvlgamma(x, 2); }, {1.5, 2},
                {psi1_half - 4 + kZeta2, kZeta2 - 1 + psi1_half - 4});
}

// By the first terms of the series at 0.
TEST(SpecialPoints, SecondGradientsAtZero) {
  constexpr double kPi = 3.14159265358979324;
  expect_second("i0", i0, {0}, {.5});
  expect_second("i1", special_i1, {0}, {0});
  expect_second("j0", special_bessel_j0, {0}, {-.5});
  expect_second("j1", special_bessel_j1, {0}, {0});
  expect_second("sinc", sinc, {0}, {-kPi * kPi / 3});
  expect_second("spherical_j0", special_spherical_bessel_j0, {0}, {-1. / 3});
  expect_second("log_ndtr", special_log_ndtr, {0}, {-2 / kPi});
  expect_second("erfcx", special_erfcx, {0}, {2});
  expect_second("atan2(x, 3)", [](const Tensor& x) { return atan2(x, 3); }, {0, 3}, {0, -1. / 18});
  expect_second("atan2(0, x)", [](const Tensor& x) { return atan2(zeros_like(x), x); }, {3, -3},
                {0, 0});
  for (const double power : {0., 1., 2., 3.}) {
    expect_second("pow", [&](const Tensor& x) { return pow(x, power); }, {0},
                  {power == 2 ? 2. : 0.});
  }
  expect_second("pow of zero", [](const Tensor& x) { return pow(zeros_like(x), x); }, {2}, {0});
  expect_second("angle", [](const Tensor& x) { return angle(complex(full_like(x, 2), x)); }, {0},
                {0});
}

// d^2 x^b / dx db is 1 / x at b = 0.
TEST(SpecialPoints, MixedSecondGradientsOfPowersOfZero) {
  const Tensor x = leaf({2, -4, .5}), b = leaf({0, 0, 0});
  const Tensor first = grad({pow(x, b).sum()}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(values(first), (Values{0, 0, 0}));
  EXPECT_EQ(values(grad({first.sum()}, {b})[0]), (Values{.5, -.25, 2}));
}

TEST(SpecialPoints, FrexpOfZero) {
  const auto f = [](const Tensor& x) { return std::get<0>(frexp(x)); };
  EXPECT_EQ(values(orders_of(f, plain({0, 1, 3})).second), (Values{0, 0, 0}));
}

// In one argument each, and in both: d^2 atan2(y, x) / dy dx at (0, 3) is -1 / 9.
TEST(SpecialPoints, MixedSecondGradientsOfAtan2OnTheAxes) {
  for (const Values& at :
       {Values{0, 3}, Values{0, -3}, Values{2, 0}, Values{1, 1}, Values{-2, 2}}) {
    const Tensor y = leaf({at[0]}), x = leaf({at[1]});
    const double square = at[0] * at[0] + at[1] * at[1];
    const std::vector<Tensor> first = grad({atan2(y, x)}, {y, x}, {}, {.create_graph = true});
    EXPECT_NEAR(values(first[0])[0], at[1] / square, 1e-15);
    EXPECT_NEAR(values(first[1])[0], -at[0] / square, 1e-15);
    const double mixed = (at[0] * at[0] - at[1] * at[1]) / (square * square);
    const double own = -2 * at[0] * at[1] / (square * square);
    const std::vector<Tensor> of_y = grad({first[0]}, {y, x}, {}, {.retain_graph = true});
    EXPECT_NEAR(values(of_y[0])[0], own, 1e-15);
    EXPECT_NEAR(values(of_y[1])[0], mixed, 1e-15);
    const std::vector<Tensor> of_x = grad({first[1]}, {y, x});
    EXPECT_NEAR(values(of_x[0])[0], mixed, 1e-15);
    EXPECT_NEAR(values(of_x[1])[0], -own, 1e-15);
  }
}

// The third derivative is that of the series, too: 3 / 8.
TEST(SpecialPoints, BesselFunctionsNearZero) {
  for (const double at : {0., 1e-8, 1e-3}) {
    const Tensor x = leaf({at});
    const Tensor first = grad({special_i1(x)}, {x}, {}, {.create_graph = true})[0];
    const Tensor second = grad({first}, {x}, {}, {.create_graph = true})[0];
    EXPECT_NEAR(values(second)[0], .375 * at, 1e-9);
    EXPECT_NEAR(values(grad({second}, {x})[0])[0], .375, 1e-6);
  }
  // On both sides of the seam at 1.
  const auto all = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{special_i1(in[0]), special_i1e(in[0]), special_bessel_j1(in[0]),
                               sinc(in[0]), special_spherical_bessel_j0(in[0])};
  };
  const Tensor points = leaf({-2, -.95, -.4, .2, .5, .89, .97, 1.03, 3});
  EXPECT_EQ(autograd::gradcheck(all, {points}).message, "");
  EXPECT_EQ(autograd::gradgradcheck(all, {points}).message, "");
}

TEST(SpecialPoints, LogarithmsOfSumsOfNothing) {
  for (const ScalarType type : {kFloat32, kFloat64}) {
    const Tensor none = full({3}, -INFINITY, type);
    const auto expect_none = [&](const PointFunction& f) {
      const Orders orders = orders_of(f, none);
      EXPECT_EQ(values(orders.first), (Values{0, 0, 0}));
      EXPECT_EQ(values(orders.second), (Values{0, 0, 0}));
    };
    expect_none([](const Tensor& x) { return logsumexp(x, {0}); });
    expect_none([](const Tensor& x) { return logsumexp(x, {0}, true); });
    expect_none([](const Tensor& x) { return logcumsumexp(x, 0); });
    expect_none([&](const Tensor& x) { return logaddexp(x, none); });
    expect_none([&](const Tensor& x) { return logaddexp(none, x); });
    expect_none([&](const Tensor& x) { return logaddexp2(x, none); });
    expect_none([&](const Tensor& x) { return logaddexp2(none, x); });
  }
  // Beside finite numbers, -infinity has no part.
  const Tensor some = plain({-INFINITY, 2, -INFINITY, 2});
  const auto expect_first = [&](const PointFunction& f, const Values& expected) {
    const Values first = values(orders_of(f, some).first);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(first[i], expected[i], 1e-15) << i;
  };
  expect_first([](const Tensor& x) { return logcumsumexp(x, 0); }, {0, 2.5, 0, .5});
  expect_first([](const Tensor& x) { return logsumexp(x, {0}); }, {0, .5, 0, .5});
}

}  // namespace
}  // namespace mytorch
