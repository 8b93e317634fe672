// Results that follow from tensors from outside alone are computed again only when these change.
#include <gtest/gtest.h>

#include "mytorch/compile.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"
#include "tests/graph/device.h"

namespace mytorch {
namespace {

Tensor random(IntList sizes) { return randn(sizes).to(test_device()); }

// Compares a compiled function with the function after `change`, twice.
template <class F, class Change>
void expect_seen(Compiled<F>& compiled, const F& function, const Tensor& x, const Change& change) {
  const NoGradGuard no_grad;
  change();
  for (int call = 0; call < 2; ++call) {
    EXPECT_TRUE(compiled(x).equal(function(x))) << "in call " << call << " after the change";
  }
}

TEST(Kept, ValuesOfTensorsFromOutsideAreComputedOnce) {
  const NoGradGuard no_grad;
  Tensor a = random({3, 8}), b = random({5, 8});
  const auto function = [&](const Tensor& x) { return linear(x, cat({a, b}, 0)); };
  auto compiled = compile(function, {.mode = CompileMode::kExact});
  const Tensor x = random({4, 8});
  const Tensor expected = function(x);
  for (int call = 0; call < 4; ++call) EXPECT_TRUE(compiled(x).equal(expected)) << call;
  EXPECT_EQ(compiled.stats().kept, 1);
  EXPECT_EQ(compiled.stats().kernel_calls, 2);
  EXPECT_EQ(compiled.stats().kept_bytes, 8 * 8 * 4);

  // Other memory may have been written as often.
  for (int i = 0; i < 4; ++i) {
    expect_seen(compiled, function, x, [&] { a.set_data(random({3, 8})); });
    expect_seen(compiled, function, x, [&] { a.add_(1); });
  }
  expect_seen(compiled, function, x, [&] { b.add_(1); });
  expect_seen(compiled, function, x, [&] { a.select(0, 1).zero_(); });
  EXPECT_EQ(compiled.stats().recorded, 1);
}

TEST(Kept, ChangesThatNobodyCountsAreSeen) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "writes on the host";
  const NoGradGuard no_grad;
  Tensor a = randn({3, 8});
  const auto function = [&](const Tensor& x) { return linear(x, cat({a, a * 2}, 0)); };
  auto compiled = compile(function, {.mode = CompileMode::kExact});
  const Tensor x = randn({4, 8});
  for (int call = 0; call < 3; ++call) compiled(x);
  EXPECT_GT(compiled.stats().kept, 0);
  float* const data = a.data<float>();
  for (const float value : {1.0f, 2.0f, 3.0f}) {
    expect_seen(compiled, function, x, [&] { data[0] = value; });
  }
  // With the pointer known before, nothing is kept.
  auto again = compile(function);
  for (int call = 0; call < 3; ++call) again(x);
  EXPECT_EQ(again.stats().kept, 0);
}

TEST(Kept, WhatTheFunctionWritesIsNot) {
  const NoGradGuard no_grad;
  Tensor a = random({4}), count = zeros({4}).to(test_device());
  const auto function = [&](const Tensor& x) {
    count.add_(1);
    const Tensor fresh = a * 2;  // written below, so made anew
    fresh.add_(x);
    return fresh + count * 3;
  };
  auto compiled = compile(function, {.mode = CompileMode::kExact});
  const Tensor x = random({4});
  for (int call = 0; call < 5; ++call) {
    const Tensor before = count.clone();
    const Tensor expected = function(x);
    count.copy_(before);
    EXPECT_TRUE(compiled(x).equal(expected)) << call;
  }
  EXPECT_EQ(compiled.stats().kept, 0);
}

TEST(Kept, ResultsAndRandomNumbersAreNot) {
  const NoGradGuard no_grad;
  Tensor a = random({4});
  const auto function = [&](const Tensor& x) {
    return std::vector<Tensor>{a + 1, x + bernoulli(full({4}, 0.5).to(a.device()))};
  };
  auto compiled = compile(function);
  const Tensor x = random({4});
  compiled(x);
  compiled(x);
  const Tensor first = compiled(x)[0];
  first.zero_();
  EXPECT_TRUE(compiled(x)[0].equal(a + 1));
  Tensor sum = zeros({4}).to(a.device());
  for (int call = 0; call < 64; ++call) sum.add_(compiled(x)[1] - x);
  EXPECT_LT(sum.max().item<float>(), 60);
  EXPECT_GT(sum.min().item<float>(), 4);
}

// A step of training writes its parameters, but neither frozen ones nor what is made of numbers.
TEST(Kept, FrozenWeightsOfATrainingStep) {
  manual_seed(3);
  nn::Linear frozen(8, 8), trained(8, 2);
  frozen.to(test_device());
  trained.to(test_device());
  for (const Tensor& p : frozen.parameters()) p.set_requires_grad(false);
  nn::optim::SGD sgd(trained.parameters(), {.lr = 0.1});
  const auto step = [&](const Tensor& x) {
    sgd.zero_grad();
    const Tensor loss =
        trained(linear(x, frozen.weight.mm(frozen.weight), frozen.bias)).square().sum();
    loss.backward();
    sgd.step();
    return loss.detach();
  };
  const Tensor x = random({4, 8});
  const Tensor start = trained.weight.detach().clone();
  std::vector<float> expected, found;
  const auto reset = [&] {
    const NoGradGuard no_grad;
    trained.weight.copy_(start);
    trained.bias.zero_();
  };
  reset();
  for (int i = 0; i < 6; ++i) {
    if (i == 4) NoGradGuard(), frozen.weight.detach().mul_(0.5);
    expected.push_back(step(x).item<float>());
  }
  {
    const NoGradGuard no_grad;
    frozen.weight.mul_(2);
  }
  reset();
  auto compiled = compile(step, {.mode = CompileMode::kExact});
  for (int i = 0; i < 6; ++i) {
    if (i == 4) NoGradGuard(), frozen.weight.detach().mul_(0.5);
    found.push_back(compiled(x).item<float>());
  }
  EXPECT_EQ(found, expected);
  EXPECT_GE(compiled.stats().kept, 1);
}

TEST(Kept, AnArgumentInTheMemoryOfATensorFromOutside) {
  const NoGradGuard no_grad;
  Tensor a = random({6});
  const auto function = [&](const Tensor& x) { return (a * 2).sum() + x.sum(); };
  auto compiled = compile(function, {.mode = CompileMode::kExact});
  for (int call = 0; call < 4; ++call) {
    EXPECT_TRUE(compiled(a).equal(function(a)));
    a.add_(1);
  }
}

}  // namespace
}  // namespace mytorch
