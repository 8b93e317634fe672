// Functions whose backward is outside of them.
#include "gtest/gtest.h"
#include "mytorch/autograd.h"
#include "mytorch/compile.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"
#include "tests/graph/device.h"

namespace mytorch {
namespace {

namespace F = nn::functional;

Tensor parameter(IntList sizes, uint64_t seed) { return drawn(sizes, seed).requires_grad_(); }

void expect_close(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.defined(), b.defined());
  EXPECT_TRUE(!a.defined() || allclose(a, b, 1e-5, 1e-6));
}

TEST(Joint, BackwardOutsideGivesTheGradsOfTheFunction) {
  const Tensor w = parameter({7, 5}, 1), b = parameter({5}, 2);
  const auto f = [&](const Tensor& x) { return tanh(matmul(x, w) + b) * x.narrow(1, 0, 5); };
  auto compiled = compile(f);
  for (uint64_t i = 0; i < 5; ++i) {
    const Tensor x = parameter({6, 7}, 10 + i), own = x.detach().clone().requires_grad_();
    F::mse_loss(f(x), zeros_like(f(x))).backward();
    const Tensor w_grad = w.grad(), b_grad = b.grad();
    w.set_grad({});
    b.set_grad({});
    const Tensor y = compiled(own);
    EXPECT_TRUE(y.requires_grad());
    F::mse_loss(y, zeros_like(y)).backward();
    expect_close(own.grad(), x.grad());
    expect_close(w.grad(), w_grad);
    expect_close(b.grad(), b_grad);
    w.set_grad({});
    b.set_grad({});
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
  EXPECT_EQ(compiled.stats().replayed, 4);
}

TEST(Joint, ArgumentsWithHistoryPassGradientsOn) {
  const Tensor w = parameter({4, 4}, 3);
  auto compiled = compile([&](const Tensor& x) { return exp(matmul(x, w) * 0.1); });
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = parameter({3, 4}, 20 + i);
    const Tensor y = compiled(x * 2);
    const Tensor expected = exp(matmul(x * 2, w) * 0.1);
    const auto found = autograd::grad({y.sum()}, {x, w});
    const auto wanted = autograd::grad({expected.sum()}, {x, w});
    expect_close(found[0], wanted[0]);
    expect_close(found[1], wanted[1]);
  }
}

TEST(Joint, CallsMayOverlap) {
  const Tensor w = parameter({4}, 4);
  auto compiled = compile([&](const Tensor& x) { return sigmoid(x * w) * w; });
  compiled(drawn({4}, 1));
  for (uint64_t i = 0; i < 3; ++i) {
    const Tensor x = drawn({4}, 30 + i), z = drawn({4}, 40 + i);
    const Tensor first = compiled(x), second = compiled(z);
    const auto f = [&](const Tensor& v) { return sigmoid(v * w) * w; };
    expect_close(autograd::grad({first.sum()}, {w})[0], autograd::grad({f(x).sum()}, {w})[0]);
    expect_close(autograd::grad({second.sum()}, {w})[0], autograd::grad({f(z).sum()}, {w})[0]);
  }
}

TEST(Joint, ResultsMayBeUnusedOrWithoutGradient) {
  const Tensor w = parameter({6}, 5);
  auto compiled = compile([&](const Tensor& x) {
    const Tensor y = x * w;
    return std::tuple(y, exp(y), (y > 0).to(kFloat32), x + 1);
  });
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = drawn({6}, 50 + i);
    auto [y, e, mask, next] = compiled(x);
    EXPECT_TRUE(y.requires_grad() && e.requires_grad());
    EXPECT_FALSE(mask.requires_grad() || next.requires_grad());
    expect_close(autograd::grad({e.sum()}, {w})[0], x * exp(x * w));
  }
}

TEST(Joint, ModelsTrainWithAnOptimizerOutside) {
  const auto losses_of = [](bool compiles) {
    manual_seed(7);
    nn::Sequential model(nn::Linear(8, 16), nn::ReLU(), nn::Dropout(0.2), nn::Linear(16, 3));
    model.to(test_device());
    nn::optim::Adam optimizer(model.parameters(), nn::optim::AdamOptions(0.01));
    const auto forward = [&](const Tensor& x) { return model.forward(x); };
    auto compiled = compile(forward, {.mode = CompileMode::kExact});
    std::vector<float> losses;
    for (uint64_t i = 0; i < 8; ++i) {
      const Tensor x = drawn({10, 8}, i), y = (x.sum({1}) > 0).to(kInt64);
      optimizer.zero_grad();
      const Tensor loss = F::cross_entropy(compiles ? compiled(x) : forward(x), y);
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<float>());
    }
    return losses;
  };
  const std::vector<float> eager = losses_of(false), compiled = losses_of(true);
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_NEAR(compiled[i], eager[i], 1e-5f) << i;
}

TEST(Joint, WritesBetweenForwardAndBackwardAreSeen) {
  const Tensor w = parameter({4}, 6);
  auto compiled = compile([&](const Tensor& x) { return x * w; });
  for (int i = 0; i < 3; ++i) {
    Tensor x = drawn({4}, 60);
    const Tensor y = compiled(x);
    x.mul_(2);
    EXPECT_THROW(y.sum().backward(), Error) << i;
  }
}

TEST(Joint, GradientsOfGradientsAreRefused) {
  const Tensor x = parameter({4}, 8);
  auto compiled = compile([](const Tensor& v) { return v * v * v; });
  compiled(x);
  const Tensor y = compiled(x);
  const Tensor gradient = autograd::grad({y.sum()}, {x}, {}, {.create_graph = true})[0];
  expect_close(gradient, 3 * x * x);
  try {
    gradient.sum().backward();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("take both derivatives inside"), std::string::npos);
  }
}

TEST(Joint, NoGradRunsWithoutHistory) {
  const Tensor w = parameter({4}, 9);
  auto compiled = compile([&](const Tensor& x) { return x * w; });
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(compiled(drawn({4}, 1)).requires_grad());
    const NoGradGuard no_grad;
    EXPECT_FALSE(compiled(drawn({4}, 1)).requires_grad());
  }
  EXPECT_EQ(compiled.stats().recorded, 2);
}

// Backward saves index tensors that the operators make from numbers of the host.
TEST(Joint, TensorsOfTheHostThatBackwardSavesAreConstants) {
  const auto f = [](const Tensor& x) { return adaptive_avg_pool3d(x, {2, 1, 2}); };
  auto compiled = compile(f);
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = parameter({1, 2, 3, 3, 5}, i), own = x.detach().clone().requires_grad_();
    f(x).sum().backward();
    compiled(own).sum().backward();
    expect_close(own.grad(), x.grad());
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
}

// Integers that are made of floats have no gradient.
TEST(Joint, ResultsWithoutAGradientMayBeIntegers) {
  auto compiled = compile([](const Tensor& x) {
    const Tensor y = x * 4;
    return std::vector<Tensor>{y, y.to(kInt32)};
  });
  for (uint64_t i = 0; i < 3; ++i) {
    const Tensor x = parameter({5}, i);
    const std::vector<Tensor> results = compiled(x);
    EXPECT_FALSE(results[1].requires_grad());
    expect_close(results[1].to(kFloat32), trunc(x.detach() * 4));
    results[0].sum().backward();
    expect_close(x.grad(), full_like(x, 4));
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
}

}  // namespace
}  // namespace mytorch
