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

}  // namespace
}  // namespace mytorch
