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

}  // namespace
}  // namespace mytorch
