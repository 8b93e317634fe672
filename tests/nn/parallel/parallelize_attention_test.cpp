// Attention and dropout of split models.
#include <gtest/gtest.h>

#include "mytorch/nn/head_parallel.h"
#include "mytorch/nn/parallel/tensor_parallel.h"
#include "tests/nn/parallel/parallelized.h"

namespace mytorch::nn::parallel_attention {
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

class ParallelAttention : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ParallelAttention, ::testing::Values(1, 2, 4));

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

TEST_P(ParallelAttention, SplitsMultiheadAttention) {
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

TEST_P(ParallelAttention, SplitsTransformers) {
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

TEST_P(ParallelAttention, SplitsSequencesOfTransformers) {
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

TEST_P(ParallelAttention, SplitsOwnAttention) {
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

// In the types that kernels of attention compute in, of other numbers of keys than they draw at
// once.
TEST(ParallelDropout, DropsTheWeightsThatAttentionDrops) {
  for (const auto& [type, tolerance] :
       {std::pair(kFloat32, 1e-5), {kBFloat16, 3e-2}, {kFloat16, 3e-3}, {kFloat64, 1e-12}}) {
    for (const int64_t keys : {1, 7, 70}) {
      const Tensor q = wave64({2, 8, 9, 4}, 1).to(type), k = wave64({2, 4, keys, 4}, 2).to(type);
      const Tensor v = wave64({2, 4, keys, 4}, 3).to(type);
      const functional::AttentionArgs options{.dropout_p = 0.4, .enable_gqa = true};
      Tensor expected;
      {
        const GeneratorGuard guard{Generator(3)};
        expected = functional::scaled_dot_product_attention(q, k, v, options);
      }
      run_alike(4, [&, type = type, tolerance = tolerance](const distributed::Group& g) {
        Attention module;
        parallelize(module, {{"", kHeads}}, g);
        const auto part = [&](const Tensor& x) {
          const int64_t n = x.size(1) / 4;
          return x.narrow(1, n * g.rank(), n);
        };
        const Generator generator(3);
        const GeneratorGuard guard{generator};
        const Tensor found = attention_of_heads(module, part(q), part(k), part(v), options);
        expect(found.dtype() == type, "another type");
        expect_close(found, part(expected), tolerance,
                     std::string(dtype_name(type)) + ", " + std::to_string(keys) + " keys");
        expect(generator.call() == 1, "the generator has taken other calls");
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

TEST(ParallelAttentionErrors, ProjectionsHaveNoRuleOfTheirOwn) {
  run_alike(2, [](const distributed::Group& g) {
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

}  // namespace
}  // namespace mytorch::nn::parallel_attention
