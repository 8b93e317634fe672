#include "mytorch/nn/parallel/parallelize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mytorch/nn/head_parallel.h"
#include "mytorch/nn/parallel/tensor_parallel.h"
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

// ---- attention ----

struct AttentionCase {
  MultiheadAttentionArgs options;
  AttentionMasks masks = {};
  bool cross = false;
};

Tensor attention_loss(MultiheadAttention& attention, const AttentionCase& c, const Tensor& x) {
  const int64_t keys = c.options.kdim.value_or(8), values = c.options.vdim.value_or(8);
  const Tensor key = c.cross ? wave64({4, 2, keys}, 5) : x;
  const Tensor value = c.cross ? wave64({4, 2, values}, 6) : x;
  const auto [y, weights] = attention(x, key, value, c.masks);
  Tensor loss = (y * wave64(y.sizes(), 3)).sum();
  if (weights.defined()) loss = loss + (weights * wave64(weights.sizes(), 4)).sum();
  return loss;
}

TEST_P(Parallelize, SplitsMultiheadAttention) {
  const Tensor causal = mytorch::triu(mytorch::ones({5, 5}, kBool), 1);
  const Tensor each = wave64({8, 5, 5}, 2);  // a mask for each head of each of 2 samples
  const Tensor padding = mytorch::zeros({2, 5}, kBool);
  padding.select(0, 1).narrow(0, 3, 2).fill_(true);
  const std::vector<AttentionCase> cases = {
      {{.dropout = 0.3}, {.need_weights = false}},
      {{.dropout = 0.3}, {.attn_mask = causal}},
      {{.dropout = 0.3}, {.is_causal = true, .need_weights = false}},
      {{.dropout = 0.3}, {.attn_mask = each, .need_weights = false}},
      {{.bias = false}, {.attn_mask = each, .average_attn_weights = false}},
      {{.dropout = 0.2}, {.key_padding_mask = padding, .need_weights = false}},
      {{.add_bias_kv = true, .add_zero_attn = true}, {.key_padding_mask = padding}},
      {{.dropout = 0.2, .add_bias_kv = true}, {.need_weights = false}},
      {{.kdim = 6, .vdim = 7}, {}, true},
      {{}, {.need_weights = false}, true},
  };
  for (const AttentionCase& c : cases) {
    const auto make = [&] { return made([&] { return MultiheadAttention(8, 4, c.options); }); };
    MultiheadAttention one = make();
    const Tensor x = wave64({5, 2, 8}, 1).requires_grad_();
    const auto loss_of = [&](MultiheadAttention& attention, int64_t) {
      return attention_loss(attention, c, x.detach());
    };
    const Trained expected = train<MultiheadAttention>(one, loss_of);
    one = make();
    one.eval();
    attention_loss(one, c, x).backward();
    run_alike(GetParam(), [&](const distributed::Group& g) {
      MultiheadAttention attention = make();
      parallelize(attention, {{"", kHeads}}, g);
      ranks::expect_same(train<MultiheadAttention>(attention, loss_of), expected, kTolerance);
      MultiheadAttention again = make();
      parallelize(again, {{"", kHeads}}, g);
      again.eval();
      const Tensor mine = x.detach().clone().requires_grad_();
      attention_loss(again, c, mine).backward();
      expect_close(mine.grad(), x.grad(), kTolerance, "the input's gradient");
    });
  }
}

TEST_P(Parallelize, SplitsTransformers) {
  for (const bool norm_first : {false, true}) {
    const auto make = [&] {
      return made([&] {
        return Transformer(8, 4,
                           {.num_encoder_layers = 2,
                            .num_decoder_layers = 1,
                            .dim_feedforward = 12,
                            .dropout = 0.2,
                            .norm_first = norm_first});
      });
    };
    Transformer one = make();
    const auto loss_of = [](Transformer& model, int64_t step) {
      const auto seed = static_cast<double>(step);
      const Tensor y = model(wave64({6, 2, 8}, seed), wave64({5, 2, 8}, seed + 1),
                             TransformerMasks{.tgt_is_causal = true});
      return (y * wave64({5, 2, 8}, 3)).sum();
    };
    const Trained expected = train<Transformer>(one, loss_of);
    run_alike(GetParam(), [&](const distributed::Group& g) {
      Transformer model = make();
      parallelize(model, transformer_plan(), g);
      expect(model.encoder.layers.at<TransformerEncoderLayer>(1).linear1.weight.size(0) ==
                 12 / g.size(),
             "not split");
      ranks::expect_same(train<Transformer>(model, loss_of), expected, 1e-10);
    });
  }
}

TEST_P(Parallelize, SplitsSequencesOfTransformers) {
  const auto make = [] {
    return made([] {
      return Transformer(8, 4,
                         {.num_encoder_layers = 1,
                          .num_decoder_layers = 2,
                          .dim_feedforward = 12,
                          .dropout = 0.2});
    });
  };
  const auto loss_of = [](Transformer& model, int64_t step, const distributed::Group* group) {
    const auto part = [&](const Tensor& x) { return group ? part_of_rank(x, 0, *group) : x; };
    const auto seed = static_cast<double>(step);
    const Tensor y = model(part(wave64({8, 2, 8}, seed)), part(wave64({4, 2, 8}, seed + 1)),
                           TransformerMasks{.tgt_is_causal = true});
    return ((group ? join_ranks(y, 0, *group) : y) * wave64({4, 2, 8}, 3)).sum();
  };
  Transformer one = make();
  const Trained expected = train<Transformer>(
      one, [&](Transformer& model, int64_t step) { return loss_of(model, step, nullptr); });
  run_alike(GetParam(), [&](const distributed::Group& g) {
    Transformer model = make();
    parallelize(model, transformer_plan(), g, {.sequence_dim = 0});
    const Trained found = train<Transformer>(
        model, [&](Transformer& split, int64_t step) { return loss_of(split, step, &g); });
    ranks::expect_same(found, expected, 1e-10);
  });
}

// The example of head_parallel.h, with fewer heads of keys.
struct Attention : Layer<Attention>, HeadParallel {
  Linear q{8, 16}, k{8, 8}, v{8, 8}, out{16, 8};
  Attention() {
    register_module("q", q);
    register_module("k", k);
    register_module("v", v);
    register_module("out", out);
  }
  HeadProjections head_projections() override {
    return {.inputs = {{&q, 8}, {&k, 4}, {&v, 4}}, .outputs = {&out}};
  }
  Tensor forward(const Tensor& input) override {
    const Tensor x = input_of_heads(*this, input);
    const auto split = [&](const Tensor& y, int64_t heads) {
      return y.unflatten(-1, {own_heads(*this, heads), -1}).transpose(1, 2);
    };
    const Tensor y = attention_of_heads(*this, split(q(x), 8), split(k(x), 4), split(v(x), 4),
                                        {.attn_mask = mask, .dropout_p = 0.25, .enable_gqa = true});
    return out(y.transpose(1, 2).flatten(2));
  }
  Tensor mask = {};
};

TEST_P(Parallelize, SplitsOwnAttention) {
  const Tensor never = mytorch::zeros({2, 8, 5, 5}, kBool);  // of all heads; a row sees no key
  never.narrow(3, 0, 3).fill_(true);
  never.select(1, 3).select(1, 2).fill_(false);
  for (const Tensor& mask : {Tensor(), never, wave64({8, 5, 5}, 3), wave64({5, 5}, 3)}) {
    const auto make = [&] {
      Attention attention = made([] { return Attention(); });
      attention.mask = mask;
      return attention;
    };
    Attention one = make();
    const auto loss_of = [](Attention& model, int64_t step) {
      return model(wave64({2, 5, 8}, static_cast<double>(step))).pow(2).mean();
    };
    const Trained expected = train<Attention>(one, loss_of);
    run_alike(GetParam(), [&](const distributed::Group& g) {
      Attention model = make();
      parallelize(model, {{"", kHeads}}, g);
      ranks::expect_same(train<Attention>(model, loss_of), expected, kTolerance);
    });
  }
}

// ---- dropout ----

// The bits are those of one rank, for any type, and all ranks' generators advance alike.
TEST(ParallelDropout, DropsWhatOneRankDrops) {
  for (const ScalarType type : {kFloat32, kBFloat16, kFloat64, kComplex64}) {
    for (const double p : {0.0, 0.3, 1.0}) {
      const Tensor x = mytorch::ones({3, 5, 8}, type);
      const auto drop = [&](Dropout& dropout, const Tensor& part) {
        const GeneratorGuard guard{Generator(2)};
        const Tensor first = dropout(part);
        return std::vector<Tensor>{first, dropout(part), mytorch::rand({3})};
      };
      Dropout one(p);
      const std::vector<Tensor> expected = drop(one, x);
      run_alike(4, [&](const distributed::Group& g) {
        Dropout dropout(p);
        parallelize(dropout, {{"", kColumn}}, g);
        const std::vector<Tensor> found = drop(dropout, x.narrow(-1, 2 * g.rank(), 2));
        for (size_t i : {0, 1}) {
          expect(mytorch::equal(found[i], expected[i].narrow(-1, 2 * g.rank(), 2)), "other bits");
        }
        expect(mytorch::equal(found[2], expected[2]), "the generators differ");
        dropout.eval();
        expect(mytorch::equal(drop(dropout, x)[0], x), "drops in evaluation");
      });
    }
  }
}

// Of a sequence, for layers of one's own.
TEST(ParallelDropout, OfOtherDimensions) {
  const Tensor x = wave64({8, 3, 2}, 1).requires_grad_();
  Tensor expected;
  {
    const GeneratorGuard guard{Generator(11)};  // as each rank's
    expected = mytorch::dropout(x, 0.4, true);
  }
  expected.sum().backward();
  run_alike(4, [&](const distributed::Group& g) {
    const Tensor part = x.detach().narrow(0, 2 * g.rank(), 2).clone().requires_grad_();
    const Tensor y = dropout_of_ranks(part, 0.4, 0, g);
    expect(mytorch::equal(y, expected.narrow(0, 2 * g.rank(), 2)), "other bits");
    y.sum().backward();
    expect(mytorch::equal(part.grad(), x.grad().narrow(0, 2 * g.rank(), 2)), "the gradient");
    expect_error([&] { dropout_of_ranks(part, 1.5, 0, g); }, "[dropout_of_ranks] p");
    expect_error([&] { dropout_of_ranks(part, 0.5, 3, g); }, "not split along dimension 3");
  });
}

TEST(ParallelDropout, WorksInPlaceAndNeedsADimension) {
  const Tensor x = mytorch::ones({6, 4});
  Dropout one(0.5);
  Tensor expected;
  {
    const GeneratorGuard guard{Generator(11)};  // as each rank's
    expected = one(x);
  }
  run_alike(2, [&](const distributed::Group& g) {
    Dropout dropout(DropoutArgs{.p = 0.5, .inplace = true});
    parallelize(dropout, {{"", kColumn}}, g);
    const Tensor part = x.narrow(1, 2 * g.rank(), 2).clone();
    dropout(part);
    expect(mytorch::equal(part, expected.narrow(1, 2 * g.rank(), 2)), "other bits");
    expect_error([&] { dropout(mytorch::ones(IntList())); }, "not split along dimension -1");
    expect(dropout(mytorch::ones({0, 2})).numel() == 0, "of nothing");
  });
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

TEST(ParallelizeErrors, SplitOnceAndByOneRule) {
  run_alike(2, [](const distributed::Group& g) {
    Net model = net();
    parallelize(model, plan_of_net(), g);
    expect_error(
        [&] {
          parallelize(model, {{"up", kColumn}}, g);
        },
        "'up' (Linear) is split already");
    Attention attention = made([] { return Attention(); });
    expect_error(
        [&] {
          parallelize(attention, {{"", kHeads}, {"q", kColumn}}, g);
        },
        "'q' (Linear) has a rule of its own");
    MultiheadAttention other(8, 4);
    expect_error(
        [&] {
          parallelize(other, {{"", kHeads}, {"out_proj", kRow}}, g);
        },
        "'out_proj' (Linear) has a rule of its own");
    parallelize(other, {{"", kHeads}, {"out_proj", kReplicate}}, g, {.dry_run = true});
    parallelize(other, {{"", kHeads}}, g);
    expect_error([&] { other.load_state_dict(MultiheadAttention(8, 4).state_dict()); }, "shape");
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
