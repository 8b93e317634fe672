// The loss of a projection in chunks: its values, gradients and memory beside linear and
// cross_entropy.
#include <gtest/gtest.h>

#include "mytorch/autograd.h"
#include "mytorch/ops.h"
#include "tests/autograd/peak_memory.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

struct LossOperands {
  Tensor input, weight, target;
};

LossOperands operands(int64_t rows, int64_t width, int64_t classes) {
  manual_seed(5);
  return {randn({rows, width}).requires_grad_(), randn({classes, width}).requires_grad_(),
          randint(0, classes, {rows})};
}

double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(LinearCrossEntropy, ChunksGiveTheResultsOfLinearAndCrossEntropy) {
  for (const char* reduction : {"mean", "sum", "none"}) {
    const auto [x, w, t] = operands(700, 9, 33);
    const Tensor loss = linear_cross_entropy(x, w, t, {}, {}, reduction, 3, 0.1);
    const Tensor expected = cross_entropy(linear(x, w), t, {}, reduction, 3, 0.1);
    EXPECT_LT(distance(loss, expected), 1e-3 * expected.abs().max().item<double>()) << reduction;
    const Tensor seed = rand(loss.sizes());
    loss.backward(seed);
    const Tensor dx = x.grad().clone(), dw = w.grad().clone();
    x.set_grad({});
    w.set_grad({});
    expected.backward(seed);
    EXPECT_LT(distance(dx, x.grad()), 1e-5) << reduction;
    EXPECT_LT(distance(dw, w.grad()), 1e-4) << reduction;
  }
}

TEST(LinearCrossEntropy, GradientsOfTheInputAlone) {
  const auto [x, w, t] = operands(20, 4, 6);
  linear_cross_entropy(x, w.detach(), t).backward();
  const Tensor dx = x.grad().clone();
  x.set_grad({});
  cross_entropy(linear(x, w), t).backward();
  EXPECT_LT(distance(dx, x.grad()), 1e-6);
}

TEST(LinearCrossEntropy, KeepsSumsOf16BitTypesInFloat32) {
  const auto [x, w, t] = operands(600, 8, 20);
  const Tensor half = x.detach().to(kBFloat16), matrix = w.detach().to(kBFloat16);
  const Tensor loss = linear_cross_entropy(half, matrix, t);
  EXPECT_EQ(loss.dtype(), kFloat32);
  const Tensor exact = cross_entropy(linear(half.to(kFloat32), matrix.to(kFloat32)), t);
  EXPECT_LT(distance(loss, exact), 2e-3);
}

TEST(LinearCrossEntropy, GradientsThatTheForwardReturnsHaveNoGradient) {
  const auto [x, w, t] = operands(5, 4, 6);
  const auto results = linear_cross_entropy_forward(x, w, t, {}, {}, true, -100, 0, 0, {1, 0, 0});
  EXPECT_ERROR(std::get<1>(results).sum().backward(), "call linear_cross_entropy");
}

TEST(LinearCrossEntropy, ScoresNeverExistAsAWhole) {
  const auto [x, w, t] = operands(2048, 8, 16384);
  const int64_t scores = t.numel() * w.size(0) * 4;
  const int64_t chunked =
      growth([&, &x = x, &w = w, &t = t] { linear_cross_entropy(x, w, t).backward(); });
  const int64_t whole =
      growth([&, &x = x, &w = w, &t = t] { cross_entropy(linear(x, w), t).backward(); });
  if (chunked < 0 || whole < 0) GTEST_SKIP() << "this system does not tell the peak";
  EXPECT_GT(whole, scores);
  EXPECT_LT(chunked, whole / 4);
}

}  // namespace
}  // namespace mytorch
