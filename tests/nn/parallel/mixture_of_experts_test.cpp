#include "mytorch/nn/parallel/mixture_of_experts.h"

#include <gtest/gtest.h>

#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/tensor_parallel.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

using distributed::Group;
using ranks::expect;
using ranks::expect_close;

constexpr int64_t kExpertWidth = 6, kExpertHidden = 10, kExperts = 8;

Tensor uneven_wave(IntList sizes, double seed) {
  const Tensor x = mytorch::empty(sizes);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] =
        static_cast<float>(std::sin(seed + 1.3 * static_cast<double>(i * (i % 7))));
  }
  return x;
}

MixtureOfExperts experts_of(MixtureOfExpertsArgs options, int64_t experts = kExperts) {
  MixtureOfExperts made(kExpertWidth, kExpertHidden, experts, std::move(options));
  return made;
}

// The parameters of one rank, and a rank's parts of them.
void set_parameters(MixtureOfExperts& module, const Group& g = {}) {
  MixtureOfExperts whole = experts_of({.gated = module.up.size(1) == 2 * kExpertHidden});
  ranks::set_parameters(whole, 1);
  const NoGradGuard no_grad;
  const int64_t here = module.up.size(0), first = g.defined() ? g.rank() * here : 0;
  module.router.weight.copy_(whole.router.weight);
  module.up.copy_(whole.up.narrow(0, first, here));
  module.down.copy_(whole.down.narrow(0, first, here));
}

// Every expert computes every token, and the probabilities of those not chosen are 0.
Tensor dense(MixtureOfExperts& m, const Tensor& x, int64_t k, bool gated, bool normalize) {
  const Tensor p = softmax(m.router(x), -1);
  const auto [values, unused] = mytorch::topk(p, k);
  const Tensor least = values.narrow(1, k - 1, 1);
  Tensor weights = p * (p >= least.detach()).to(kFloat32);
  if (normalize) weights = weights / weights.sum(IntList{1}, true);
  Tensor sum = mytorch::zeros(x.sizes());
  for (int64_t e = 0; e < m.up.size(0); ++e) {
    Tensor h = mytorch::matmul(x, m.up[e].t());
    h = gated ? silu(h.narrow(1, 0, kExpertHidden)) * h.narrow(1, kExpertHidden, kExpertHidden)
              : relu(h);
    sum = sum + mytorch::matmul(h, m.down[e].t()) * weights.narrow(1, e, 1);
  }
  return sum;
}

struct Form {
  const char* name;
  int64_t top_k;
  bool gated, normalize;
};
constexpr Form kForms[] = {{"OfOne", 1, false, false},
                           {"OfTwo", 2, false, true},
                           {"OfThreeGated", 3, true, true},
                           {"OfAllGated", kExperts, true, false}};
MixtureOfExpertsArgs options_of(const Form& form, const Group& g = {}) {
  return {.top_k = form.top_k,
          .activation = form.gated ? TransformerActivation([](const Tensor& x) { return silu(x); })
                                   : TransformerActivation("relu"),
          .gated = form.gated,
          .normalize = form.normalize,
          .balance_loss = 0.1,
          .z_loss = 0.01,
          .group = g};
}

class Experts : public ::testing::TestWithParam<Form> {};
TEST_P(Experts, AreTheSumOfTheChosen) {
  const Form& form = GetParam();
  MixtureOfExperts sparse = experts_of(options_of(form));
  MixtureOfExperts other = experts_of(options_of(form));
  set_parameters(sparse);
  set_parameters(other);
  const Tensor x = uneven_wave({3, 5, kExpertWidth}, 0).requires_grad_();
  const Tensor y = sparse(x);
  const Tensor same = x.detach().clone().requires_grad_();
  const Tensor expected =
      dense(other, same.reshape({-1, kExpertWidth}), form.top_k, form.gated, form.normalize);
  expect_close(y, expected.view({3, 5, kExpertWidth}), 1e-6, "result");
  const Tensor weights = uneven_wave({3, 5, kExpertWidth}, 2);
  (y * weights).sum().backward();
  (expected.view(y.sizes()) * weights).sum().backward();
  expect_close(x.grad(), same.grad(), 1e-5, "the input's gradient");
  expect_close(sparse.router.weight.grad(), other.router.weight.grad(), 1e-5, "router");
  expect_close(sparse.up.grad(), other.up.grad(), 1e-5, "up");
  expect_close(sparse.down.grad(), other.down.grad(), 1e-5, "down");
  int64_t chosen = 0;
  for (const int64_t n : sparse.tokens_of_experts()) chosen += n;
  EXPECT_EQ(chosen, 15 * form.top_k);
  EXPECT_EQ(sparse.dropped(), 0);
}
INSTANTIATE_TEST_SUITE_P(Forms, Experts, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

class ExpertParallel : public ::testing::TestWithParam<std::tuple<int, Form>> {};
TEST_P(ExpertParallel, EqualsOneRank) {
  const int size = std::get<0>(GetParam());
  const Form& form = std::get<1>(GetParam());
  // Ranks have different numbers of tokens, the first of several none.
  std::vector<int64_t> first = {0};
  for (int r = 0; r < size; ++r) first.push_back(first.back() + (size == 1 ? 9 : 5 * r));
  const int64_t n = first.back();
  MixtureOfExperts one = experts_of(options_of(form));
  set_parameters(one);
  const Tensor x = uneven_wave({n, kExpertWidth}, 0).requires_grad_(),
               weights = uneven_wave({n, kExpertWidth}, 2);
  const Tensor y = one(x);
  (y * weights).sum().backward();
  distributed::run_local(size, [&](const Group& g) {
    MixtureOfExperts mine = experts_of(options_of(form, g));
    set_parameters(mine, g);
    const auto r = static_cast<size_t>(g.rank());
    const auto part = [&](const Tensor& t) {
      return t.narrow(0, first[r], first[r + 1] - first[r]);
    };
    const Tensor tokens = part(x.detach()).clone().requires_grad_();
    const Tensor found = mine(tokens);
    expect_close(found, part(y), 1e-6, "result");
    sum_gradients_of_ranks(mine.router, g);
    (found * part(weights)).sum().backward();
    expect_close(tokens.grad(), part(x.grad()), 1e-5, "the input's gradient");
    const int64_t here = kExperts / g.size();
    expect_close(mine.up.grad(), one.up.grad().narrow(0, g.rank() * here, here), 1e-5, "up");
    expect_close(mine.down.grad(), one.down.grad().narrow(0, g.rank() * here, here), 1e-5, "down");
    expect_close(mine.router.weight.grad(), one.router.weight.grad(), 1e-5, "router");
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, ExpertParallel,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::ValuesIn(kForms)),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).name) + "On" +
                                  std::to_string(std::get<0>(info.param));
                         });

TEST(ExpertLosses, MeanOverRanksIsThatOfOne) {
  const Form& form = kForms[1];
  for (const int size : {1, 2, 4}) {
    MixtureOfExperts one = experts_of(options_of(form));
    set_parameters(one);
    const Tensor x = uneven_wave({12, kExpertWidth}, 0);
    one(x);
    one.auxiliary_loss().backward();
    distributed::run_local(size, [&](const Group& g) {
      MixtureOfExperts mine = experts_of(options_of(form, g));
      set_parameters(mine, g);
      const int64_t rows = 12 / g.size();
      mine(x.narrow(0, g.rank() * rows, rows));
      sum_gradients_of_ranks(mine.router, g);
      const Tensor loss = mine.auxiliary_loss() / g.size();
      loss.backward();
      const Tensor sum = loss.detach().clone();
      g.all_reduce(sum);
      expect_close(sum, one.auxiliary_loss(), 1e-6, "loss");
      expect_close(mine.router.weight.grad(), one.router.weight.grad(), 1e-5, "router");
    });
  }
}

TEST(ExpertLosses, AreThoseOfTheirFormulas) {
  MixtureOfExperts m = experts_of({.top_k = 1, .balance_loss = 1, .z_loss = 0});
  {
    const NoGradGuard no_grad;
    m.router.weight.zero_();
    m.router.weight[3][0] = 20.0;  // the fourth expert, for every token whose first feature is 1
  }
  const Tensor x = mytorch::zeros({10, kExpertWidth});
  x.select(1, 0).fill_(1);
  m(x);
  EXPECT_NEAR(m.auxiliary_loss().item<double>(), kExperts, 1e-4);
  EXPECT_EQ(m.tokens_of_experts(), (std::vector<int64_t>{0, 0, 0, 10, 0, 0, 0, 0}));
  MixtureOfExperts z = experts_of({.balance_loss = 0, .z_loss = 2});
  {
    const NoGradGuard no_grad;
    z.router.weight.zero_();
  }
  z(x);
  const double logarithm = std::log(static_cast<double>(kExperts));
  EXPECT_NEAR(z.auxiliary_loss().item<double>(), 2 * logarithm * logarithm, 1e-5);
}

// Tokens whose two choices are known: token i of expert i % 2 first, then the other one of 0 and 1.
TEST(ExpertCapacity, DropsLaterTokensAndSecondChoices) {
  MixtureOfExperts m(2, kExpertHidden, 2, {.top_k = 2, .capacity_factor = 0.5});
  {
    const NoGradGuard no_grad;
    m.router.weight.copy_(mytorch::eye(2) * 3);
  }
  MixtureOfExperts all(2, kExpertHidden, 2, {.top_k = 2});
  {
    const NoGradGuard no_grad;
    for (size_t i = 0; i < m.parameters().size(); ++i) all.parameters()[i].copy_(m.parameters()[i]);
  }
  const Tensor x =
      mytorch::tensor({1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0}).reshape({4, 2}).to(kFloat32);
  // An expert has 0.5 * 4 * 2 / 2 = 2 places. Three tokens prefer the first one, one the second,
  // which has a place left for the first token that has it second.
  const Tensor y = m(x), whole = all(x);
  EXPECT_EQ(m.dropped(), 4);
  EXPECT_EQ(m.tokens_of_experts(), (std::vector<int64_t>{4, 4}));
  expect_close(y[0], whole[0], 1e-6, "a token with both");
  expect(y[3].abs().max().item<double>() == 0, "a token without a place gets something");
  expect(y[1].abs().max().item<double>() > 0, "the only token of the second expert is dropped");
  expect(y[2].abs().max().item<double>() > 0, "the second token of the first expert is dropped");
  // What it lacks is the second choice.
  const double second = 1 / (1 + std::exp(3.0));
  const Tensor h = gelu(mytorch::matmul(m.up[1], x[2]));
  expect_close(whole[2] - y[2], mytorch::matmul(m.down[1], h) * second, 1e-5, "what is dropped");
  y.sum().backward();
  expect(m.router.weight.grad().isfinite().all().item<bool>(), "a gradient is not finite");
}

TEST(ExpertCapacity, OfEnoughPlacesDropsNothing) {
  for (const int size : {1, 2, 4}) {
    distributed::run_local(size, [](const Group& g) {
      MixtureOfExperts free = experts_of({.group = g});
      MixtureOfExperts bound = experts_of({.capacity_factor = kExperts, .group = g});
      set_parameters(free, g);
      set_parameters(bound, g);
      const Tensor x = uneven_wave({7, kExpertWidth}, g.rank());
      expect_close(bound(x), free(x), 0, "result");
      expect(bound.dropped() == 0, "tokens are dropped");
    });
  }
}

TEST(ExpertTypes, AreThoseOfTheLayer) {
  MixtureOfExperts m = experts_of({});
  set_parameters(m);
  const Tensor x = uneven_wave({9, kExpertWidth}, 0);
  const Tensor expected = m(x).detach();
  m.to(kBFloat16);
  const Tensor y = m(x.to(kBFloat16));
  expect(y.dtype() == kBFloat16, "wrong type");
  expect_close(y.to(kFloat32), expected, 0.05, "in bfloat16");
  y.sum().backward();
  expect(m.up.grad().dtype() == kBFloat16, "the gradient has another type");
}

TEST(ExpertInitialization, IsThatOfOneRank) {
  manual_seed(11);
  MixtureOfExperts one = experts_of({});
  distributed::run_local(2, [&](const Group& g) {
    for (int turn = 0; turn < 2; ++turn) {  // threads share the default generator
      if (turn == g.rank()) {
        manual_seed(11);
        MixtureOfExperts mine = experts_of({.group = g});
        expect_close(mine.router.weight, one.router.weight, 0, "router");
        expect_close(mine.up, one.up.narrow(0, g.rank() * 4, 4), 0, "up");
        expect_close(mine.down, one.down.narrow(0, g.rank() * 4, 4), 0, "down");
      }
      g.barrier();
    }
  });
}

TEST(ExpertMistakes, AreExplained) {
  ranks::expect_error([] { experts_of({.top_k = 9}); }, "top_k is 9 of 8 experts");
  ranks::expect_error([] { experts_of({.top_k = 0}); }, "give at least 1");
  ranks::expect_error([] { experts_of({.capacity_factor = -1}); }, "capacity_factor is -1");
  MixtureOfExperts m = experts_of({});
  ranks::expect_error([&] { m.auxiliary_loss(); }, "call it first");
  ranks::expect_error([&] { m(mytorch::zeros({2, kExpertWidth + 1})); }, "must be 6");
  distributed::run_local(3, [](const Group& g) {
    ranks::expect_error([&] { experts_of({.group = g}); }, "multiple");
    g.barrier();
  });
}

}  // namespace
}  // namespace mytorch::nn
