#include "mytorch/nn/parallel/parallelize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nn/parallel/parallel_rules.h"
#include "nn/parallel/split_parameters.h"
#include "tests/nn/parallel/parallelized.h"

namespace mytorch::nn::parallelize_layers {
namespace {

using enum ParallelStyle;
using ranks::expect;
using ranks::expect_close;
using ranks::expect_error;
using ranks::made;
using ranks::run_alike;
using ranks::train;
using ranks::Trained;
using ranks::wave64;

constexpr double kTolerance = 1e-11;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ParallelRules, MatchComponents) {
  const auto matches = [](const char* pattern, const char* name) {
    return parallel::matches(pattern, name);
  };
  EXPECT_TRUE(matches("a.b", "a.b"));
  EXPECT_FALSE(matches("a.b", "a"));
  EXPECT_FALSE(matches("a", "a.b"));
  EXPECT_TRUE(matches("*.b", "a.b"));
  EXPECT_FALSE(matches("*", "a.b"));
  EXPECT_FALSE(matches("*", ""));
  EXPECT_TRUE(matches("**.b", "b"));
  EXPECT_TRUE(matches("**.b", "a.c.b"));
  EXPECT_FALSE(matches("**.b", "a.bb"));
  EXPECT_TRUE(matches("h.**.c", "h.c"));
  EXPECT_TRUE(matches("h.**.c.*", "h.1.c.c.x"));
  EXPECT_TRUE(matches("**", ""));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("a*", "ab"));  // whole components alone
}

// A model that calls forward of its layers, as programs of libtorch do: hooks would not run.
struct Net : Layer<Net> {
  Linear up{6, 8}, down{8, 6}, head{6, 5};
  Dropout dropout{0.4};
  Net() {
    register_module("up", up);
    register_module("dropout", dropout);
    register_module("down", down);
    register_module("head", head);
  }
  Tensor forward(const Tensor& x) override {
    return head->forward(x + down->forward(dropout->forward(up->forward(x).tanh())));
  }
};
Net net() {
  return made([] { return Net(); });
}
const ParallelPlan& plan_of_net() {
  static const auto* const plan = new ParallelPlan{
      {"up", kColumn}, {"dropout", kColumn}, {"down", kRow}, {"head", kVocabulary}};
  return *plan;
}
Tensor loss_of_net(Net& model, int64_t step) {
  const Tensor y = model(wave64({3, 4, 6}, static_cast<double>(step)));
  return (y * wave64({3, 4, 5}, 2)).pow(2).mean();
}

class Parallelize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Parallelize, ::testing::Values(1, 2, 4));

TEST_P(Parallelize, TrainsLayersThatForwardCalls) {
  Net one = net();
  const Trained expected = train<Net>(one, loss_of_net);
  run_alike(GetParam(), [&](const distributed::Group& g) {
    Net model = net();
    const Tensor up = model.up.weight.detach().clone(), down = model.down.weight.detach().clone();
    parallelize(model, plan_of_net(), g);
    const int64_t n = 8 / g.size();
    expect_close(model.up.weight, up.narrow(0, n * g.rank(), n), 0, "up.weight");
    expect_close(model.down.weight, down.narrow(1, n * g.rank(), n), 0, "down.weight");
    expect(model.up.weight.is_contiguous() && model.up.weight.storage_offset() == 0 &&
               model.up.weight.requires_grad(),
           "the part is a view of the whole, or not trained");
    ranks::expect_same(train<Net>(model, loss_of_net), expected, kTolerance);
  });
}

// The input's gradient, a frozen weight, and no gradient at all.
TEST_P(Parallelize, ComputesOnlyTheGradientsThatAreWanted) {
  Net one = net();
  one.eval();
  one.up.weight.requires_grad_(false);
  const Tensor x = wave64({2, 6}, 1).requires_grad_();
  one(x).sum().backward();
  run_alike(GetParam(), [&](const distributed::Group& g) {
    Net model = net();
    model.eval();
    model.up.weight.requires_grad_(false);
    parallelize(model, plan_of_net(), g);
    const Tensor mine = x.detach().clone().requires_grad_();
    model(mine).sum().backward();
    expect_close(mine.grad(), x.grad(), kTolerance, "the input's gradient");
    expect(!model.up.weight.grad().defined(), "a frozen weight has a gradient");
    const NoGradGuard no_grad;
    expect_close(model(mine), one(x), kTolerance, "without gradients");
    expect(model(wave64({0, 6}, 0)).sizes() == IntList({0, 5}), "of no examples");
  });
}

TEST_P(Parallelize, ClearsGradients) {
  run_alike(GetParam(), [](const distributed::Group& g) {
    Net model = net();
    loss_of_net(model, 0).backward();
    parallelize(model, plan_of_net(), g, {.dry_run = true});
    expect(model.down.bias.grad().defined(), "a dry run clears gradients");
    parallelize(model, plan_of_net(), g);
    for (const Tensor& p : model.parameters()) expect(!p.grad().defined(), "a gradient is left");
  });
}

// Parameters that differ become those of rank 0.
TEST(ParallelizeState, IsThatOfRankZero) {
  run_alike(2, [](const distributed::Group& g) {
    Net model = net(), zero = net();
    const NoGradGuard no_grad;
    if (g.rank() == 1) {
      for (const Tensor& p : model.parameters()) p.fill_(3);
    }
    parallelize(model, plan_of_net(), g);
    ranks::expect_same_state(whole_state_dict(model), zero.state_dict(), 0, "state");
  });
}

TEST_P(Parallelize, TakesAndGivesWholeStates) {
  Net other = net();
  for (const Tensor& p : other.parameters()) p.detach().copy_(wave64(p.sizes(), 5));
  run_alike(GetParam(), [&](const distributed::Group& g) {
    Net model = net();
    parallelize(model, plan_of_net(), g);
    load_whole_state_dict(model, other.state_dict());
    ranks::expect_same_state(whole_state_dict(model), other.state_dict(), 0, "loaded");
    TensorMap wrong = other.state_dict();
    wrong["up.weight"] = mytorch::zeros({7, 6});
    expect_error([&] { load_whole_state_dict(model, wrong); }, "'up.weight' has shape (7, 6)");
    wrong.erase("up.weight");
    expect_error([&] { load_whole_state_dict(model, wrong); }, "missing 'up.weight'");
    wrong.erase("down.weight");
    expect(load_whole_state_dict(model, wrong, false).missing.size() == 2, "the report");
    ranks::expect_same_state(whole_state_dict(model), other.state_dict(), 0, "kept");
  });
}

TEST_P(Parallelize, ClipsByTheNormOfAll) {
  for (const double norm_type : {2.0, 1.0, kInfinity}) {
    Net one = net();
    one.eval();
    loss_of_net(one, 0).backward();
    const double norm = optim::clip_grad_norm_(one.parameters(), 0.01, norm_type);
    run_alike(GetParam(), [&](const distributed::Group& g) {
      Net model = net();
      model.eval();
      parallelize(model, plan_of_net(), g);
      loss_of_net(model, 0).backward();
      const double found = clip_grad_norm_(model, 0.01, {.norm_type = norm_type});
      expect_close(found, norm, kTolerance, "norm");
      const int64_t n = 8 / g.size();
      expect_close(model.up.bias.grad(), one.up.bias.grad().narrow(0, n * g.rank(), n), kTolerance,
                   "up.bias");
      expect_close(model.down.bias.grad(), one.down.bias.grad(), kTolerance, "down.bias");
      expect_error([&] { clip_grad_norm_(model, -1); }, "max_norm");
      for (const double order : {0.0, -1.0, -kInfinity, std::nan("")}) {
        expect_error([&] { clip_grad_norm_(model, 0.01, {.norm_type = order}); }, "norm_type is");
      }
    });
  }
}

// ---- errors: nothing has changed afterwards ----

struct Other final : Linear {
  using Linear::Linear;
  Tensor forward(const Tensor& x) override { return linear(x, weight * 2, bias); }
};

TEST(ParallelizeErrors, NameTheRuleOrTheModule) {
  run_alike(3, [](const distributed::Group& g) {
    Net model = net();
    const auto refuses = [&](Module& module, const ParallelPlan& plan, const std::string& text) {
      expect_error([&] { parallelize(module, plan, g); }, text);
    };
    refuses(model, {{"up", kColumn}}, "'up' (Linear) has 8 output features");
    refuses(model, {{"down", kRow}}, "'down' (Linear) has 8 input features, and the 3 ranks");
    refuses(model, {{"middle", kRow}}, "the rule 'middle' matches no module: the model has 'up'");
    refuses(model, {{"*.*", kRow}}, "matches no module");
    refuses(model, {{"dropout", kRow}}, "'dropout' (Dropout) cannot be split by kRow");
    refuses(model, {{"", kHeads}}, "'' (Net) cannot be split by kHeads");
    refuses(model, {{"dropout", kVocabulary}}, "which is for Embedding and Linear");
    refuses(model, {{"up", static_cast<ParallelStyle>(99)}}, "there is no style 99");
    LayerNorm norm(6);
    refuses(norm, {{"", kColumn}}, "'' (LayerNorm) cannot be split by kColumn");
    expect_error(
        [&] {
          parallelize(model, {{"up", kSequence}}, g, {.sequence_dim = 0});
        },
        "'up' (Linear) cannot be split by kSequence, which is for LayerNorm");
    Sequential others(Other(6, 6), Embedding(6, 6, {.max_norm = 1}),
                      Embedding(6, 6, {.scale_grad_by_freq = true}), MultiheadAttention(8, 4),
                      LazyLinear(6));
    refuses(others, {{"0", kColumn}}, "'0' (Other) cannot be split by kColumn");
    refuses(others, {{"1", kVocabulary}}, "max_norm");
    refuses(others, {{"2", kVocabulary}}, "scale_grad_by_freq");
    refuses(others, {{"3", kHeads}}, "'3' (MultiheadAttention) has 4 heads");
    refuses(others, {{"4", kColumn}}, "has no parameters yet");
    Sequential parametrized(Linear(6, 6));
    utils::parametrizations::weight_norm(parametrized[0]);
    refuses(parametrized, {{"0", kColumn}}, "'0' (Linear) is parametrized");
    expect(model.up.weight.size(0) == 8 && parallel::split_parameters(model).empty(),
           "something has changed");
  });
}

// The copy of a module has its hooks, and what splits it, too.
TEST(ParallelizeErrors, RefuseHooksThatCopiesShare) {
  run_alike(2, [](const distributed::Group& g) {
    Net model = net();
    model.down.register_forward_hook([](Module&, const Tensor&, const Tensor&) {});
    {
      Net copy = clone(model);
      for (Net* each : {&model, &copy}) {
        expect_error([&] { parallelize(*each, plan_of_net(), g); },
                     "'down' (Linear) shares its hooks with a copy");
        expect(each->up.weight.size(0) == 8 && each->down.weight.size(1) == 8 &&
                   parallel::split_parameters(*each).empty(),
               "something has changed");
      }
      parallelize(copy, {{"up", kColumn}}, g, {.dry_run = true});  // has no hooks
    }
    parallelize(model, plan_of_net(), g);  // has no copy any more
    expect(model.down.weight.size(1) == 4, "not split");
  });
}

TEST(ParallelizeErrors, SplitOnce) {
  run_alike(2, [](const distributed::Group& g) {
    Net model = net();
    parallelize(model, plan_of_net(), g);
    expect_error(
        [&] {
          parallelize(model, {{"up", kColumn}}, g);
        },
        "'up' (Linear) is split already");
  });
}

TEST(ParallelizeArguments, TheFirstRuleHoldsAndADryRunChangesNothing) {
  run_alike(2, [](const distributed::Group& g) {
    Net model = net();
    const ParallelPlan plan = {
        {"up", kReplicate}, {"dropout", kReplicate}, {"*", kVocabulary}, {"x", kRow}};
    const std::string text = parallelize(model, plan, g, {.strict = false, .dry_run = true});
    expect(text ==
               "down (Linear) kVocabulary: weight (6, 8) -> (3, 8), bias (6,) -> (3,)\n"
               "head (Linear) kVocabulary: weight (5, 6) -> (3, 6), bias (5,) -> (3,)\n",
           text);
    expect(parallel::split_parameters(model).empty(), "something has changed");
    expect(parallelize(model, plan, g, {.strict = false}) == text, "another text");
    expect(model.head.describe() ==
               "Linear(in_features=6, out_features=5, bias=true, vocabulary of 2 ranks)",
           model.head.describe());
    Net one = net();
    one.eval();
    model.eval();
    expect_close(model(wave64({2, 6}, 0)), one(wave64({2, 6}, 0)), kTolerance, "result");
  });
}

}  // namespace
}  // namespace mytorch::nn::parallelize_layers
