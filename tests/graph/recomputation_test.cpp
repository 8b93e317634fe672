// Values of forward that are computed again in backward.
#include <cstdlib>

#include "gtest/gtest.h"
#include "mytorch/autograd.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/models/gpt2.h"
#include "tests/autograd/util.h"
#include "tests/graph/device.h"

namespace mytorch {
namespace {

namespace F = nn::functional;

int64_t count_of(const CompileStats& stats, const std::string& name) {
  const auto found = stats.rewritten.find(name);
  return found == stats.rewritten.end() ? 0 : found->second;
}

// Three layers, whose losses and weights after some steps are compared with eager training.
struct Trained {
  CompileStats stats;
  std::vector<Tensor> values;
};
template <class Loss>
Trained train(CompileMode mode, double budget, bool compiled, const Loss& loss_of) {
  Trained found;
  std::vector<Tensor> weights;
  for (uint64_t i = 0; i < 3; ++i) {
    weights.push_back((drawn_on_cpu({32, 32}, 10 + i) * 0.2).requires_grad_());
  }
  nn::optim::SGD sgd(weights, nn::optim::SGDOptions(0.05));
  const auto step = [&](const Tensor& x) {
    sgd.zero_grad();
    const Tensor loss = loss_of(x, weights);
    loss.backward();
    sgd.step();
    return loss.detach();
  };
  auto fast = compile(step, {.mode = mode, .memory_budget = budget});
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = drawn_on_cpu({64, 32}, 20 + i);
    found.values.push_back(compiled ? fast(x) : step(x));
  }
  found.stats = fast.stats();
  for (const Tensor& weight : weights) found.values.push_back(weight.detach());
  return found;
}

Tensor activations(const Tensor& x, const std::vector<Tensor>& weights) {
  Tensor y = x;
  for (const Tensor& weight : weights) y = F::silu(matmul(F::layer_norm(y, {32}), weight)) + y;
  return (y * y).mean();
}

template <class Loss>
void expect_equal(CompileMode mode, double budget, const Loss& loss) {
  const Trained eager = train(mode, budget, false, loss), found = train(mode, budget, true, loss);
  for (size_t i = 0; i < eager.values.size(); ++i) {
    if (mode == CompileMode::kExact) {
      EXPECT_TRUE(equal(found.values[i], eager.values[i])) << i;
    } else {
      EXPECT_TRUE(allclose(found.values[i], eager.values[i], 1e-4, 1e-5)) << i;
    }
  }
}

TEST(Recomputation, FreesMemoryAndKeepsTheBits) {
  for (const double budget : {0., 0.3, 0.7, 1.}) {
    expect_equal(CompileMode::kExact, budget, activations);
    expect_equal(CompileMode::kDefault, budget, activations);
  }
  const CompileStats all = train(CompileMode::kExact, 1, true, activations).stats;
  const CompileStats none = train(CompileMode::kExact, 0, true, activations).stats;
  EXPECT_EQ(count_of(all, "recomputation"), 0);
  // The norm and the activation of each layer; what the last product needs is in use anyway.
  EXPECT_GE(count_of(none, "recomputation"), 4);
  EXPECT_GE(count_of(none, "recomputation: bytes"), 4 * 64 * 32 * 4);
  EXPECT_LT(none.planned_bytes, all.planned_bytes);
}

TEST(Recomputation, ASmallerBudgetFreesMore) {
  int64_t last = -1;
  for (const double budget : {1., 0.9, 0.6, 0.}) {
    const int64_t freed = count_of(train(CompileMode::kExact, budget, true, activations).stats,
                                   "recomputation: bytes");
    EXPECT_GE(freed, last) << budget;
    last = freed;
  }
}

TEST(Recomputation, CanBeDisabled) {
  setenv("MYTORCH_COMPILE_WITHOUT", "recomputation", 1);
  const CompileStats stats = train(CompileMode::kExact, 0, true, activations).stats;
  unsetenv("MYTORCH_COMPILE_WITHOUT");
  EXPECT_EQ(count_of(stats, "recomputation"), 0);
}

TEST(Recomputation, WhatIsWrittenInBetweenStays) {
  // The operand of sigmoid has changed before backward.
  const auto writes = [](const Tensor& x, const std::vector<Tensor>& weights) {
    Tensor scratch = matmul(x, weights[0].detach());
    const Tensor gate = sigmoid(scratch);
    scratch.mul_(2);
    return (matmul(x, weights[1]) * gate * scratch).mean();
  };
  expect_equal(CompileMode::kExact, 0, writes);
  // So has an argument, which lives anyway.
  const auto argument = [](Tensor x, const std::vector<Tensor>& weights) {
    const Tensor gate = sigmoid(x), y = matmul(ones({64, 32}), weights[1]) * gate;
    x.mul_(2);
    return (y * x).mean();
  };
  expect_equal(CompileMode::kExact, 0, argument);
  EXPECT_EQ(count_of(train(CompileMode::kExact, 0, true, argument).stats, "recomputation"), 0);
}

TEST(Recomputation, AResultThatACallLeavesOutGivesNothing) {
  // gelu of the product, which is not kept.
  const auto gated = [](const Tensor& x, const std::vector<Tensor>& weights) {
    const auto [gate, none] = linear_gelu_forward(x, weights[0].detach(), {}, "tanh", false);
    return (matmul(x, weights[1]) * gate).mean();
  };
  expect_equal(CompileMode::kDefault, 0, gated);
}

TEST(Recomputation, DropoutKeepsItsMask) {
  const auto with_dropout = [](const Tensor& x, const std::vector<Tensor>& weights) {
    Tensor y = x;
    for (const Tensor& weight : weights) y = F::gelu(F::dropout(matmul(y, weight), 0.3));
    return (y * y).mean();
  };
  manual_seed(5);
  const Trained eager = train(CompileMode::kExact, 0, false, with_dropout);
  manual_seed(5);
  const Trained found = train(CompileMode::kExact, 0, true, with_dropout);
  EXPECT_GT(count_of(found.stats, "recomputation"), 0);
  for (size_t i = 0; i < eager.values.size(); ++i) {
    EXPECT_TRUE(equal(found.values[i], eager.values[i])) << i;
  }
}

TEST(Recomputation, ABackwardOutsideReadsFewerValues) {
  const Tensor w = (drawn_on_cpu({32, 32}, 3) * 0.2).requires_grad_();
  const auto f = [&](const Tensor& x) {
    return matmul(F::silu(matmul(F::silu(matmul(x, w)), w)), w);
  };
  for (const CompileMode mode : {CompileMode::kExact, CompileMode::kDefault}) {
    auto compiled = compile(f, {.mode = mode, .memory_budget = 0});
    for (uint64_t i = 0; i < 4; ++i) {
      const Tensor x = drawn_on_cpu({64, 32}, 30 + i);
      const Tensor expected = autograd::grad({(f(x) * f(x)).sum()}, {w})[0];
      const Tensor y = compiled(x);
      EXPECT_TRUE(allclose(autograd::grad({(y * y).sum()}, {w})[0], expected, 1e-4, 1e-4));
    }
    // Both results of silu follow from the products, which backward reads anyway.
    EXPECT_GE(count_of(compiled.stats(), "recomputation"), 2);
    EXPECT_GE(count_of(compiled.stats(), "recomputation: bytes"), 2 * 64 * 32 * 4);
  }
}

TEST(Recomputation, Gpt2) {
  nn::models::GPT2Config config;
  config.vocab_size = 64;
  config.n_positions = 16;
  config.n_layer = 3;
  config.n_embd = 32;
  config.n_head = 2;
  const Tensor x = randint(0, 64, {2, 16}), y = randint(0, 64, {2, 16});
  for (const CompileMode mode : {CompileMode::kExact, CompileMode::kDefault}) {
    std::vector<std::vector<Tensor>> found;
    std::vector<int64_t> bytes;
    for (const double budget : {1., 0.}) {
      manual_seed(3);
      nn::models::GPT2LMHeadModel model(config);
      nn::optim::AdamW adam(model.parameters(), {.lr = 1e-3});
      auto step = compile(
          [&](const Tensor& inputs, const Tensor& targets) {
            adam.zero_grad();
            const Tensor loss = F::cross_entropy(model(inputs).flatten(0, 1), targets.flatten());
            loss.backward();
            adam.step();
            return loss.detach();
          },
          {.mode = mode, .memory_budget = budget});
      std::vector<Tensor>& values = found.emplace_back();
      for (int i = 0; i < 4; ++i) values.push_back(step(x, y));
      for (const Tensor& parameter : model.parameters()) values.push_back(parameter.detach());
      bytes.push_back(step.stats().planned_bytes);
      EXPECT_EQ(count_of(step.stats(), "recomputation") > 0, budget == 0);
    }
    EXPECT_LT(bytes[1], bytes[0]);
    for (size_t i = 0; i < found[0].size(); ++i) {
      EXPECT_TRUE(mode == CompileMode::kExact ? equal(found[0][i], found[1][i])
                                              : allclose(found[0][i], found[1][i], 1e-4, 1e-4))
          << i;
    }
  }
}

TEST(Recomputation, ABudgetIsAPart) {
  const auto f = [](const Tensor& x) { return x; };
  EXPECT_ERROR((void)compile(f, CompileOptions{.memory_budget = 2}), "give a part, from 0 to 1");
}

}  // namespace
}  // namespace mytorch
