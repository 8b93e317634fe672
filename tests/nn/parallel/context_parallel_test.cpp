// Layers whose attention is over tokens that are split over ranks.
#include <gtest/gtest.h>

#include "mytorch/distributed/attention.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/tensor_parallel.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

using distributed::Group;
using distributed::split_sequence;
using ranks::expect_close;

constexpr int64_t kTokenWidth = 16, kHeads = 4, kTokens = 16;

AttentionFunction attention_of(const Group& g, bool ring) {
  return [g, ring](const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal) {
    return ring ? distributed::ring_attention(q, k, v, g, {.is_causal = is_causal})
                : distributed::ulysses_attention(q, k, v, g, {.is_causal = is_causal});
  };
}

Tensor tokens() {
  const Tensor x = mytorch::empty({2, kTokens, kTokenWidth});
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = static_cast<float>(std::sin(0.9 * static_cast<double>(i * (i % 5 + 1))));
  }
  return x;
}

class ContextParallel : public ::testing::TestWithParam<std::tuple<int, bool, bool>> {};
TEST_P(ContextParallel, LayersHaveTheResultsAndGradientsOfOneRank) {
  const auto& [size, ring, causal] = GetParam();
  const TransformerEncoderLayerArgs options{
      .dim_feedforward = 24, .dropout = 0, .batch_first = true, .norm_first = true};
  TransformerEncoderLayer one(kTokenWidth, kHeads, options);
  ranks::set_parameters(one, 1);
  const Tensor x = tokens();
  const AttentionMasks masks{.is_causal = causal, .need_weights = false};
  const Tensor y = one(x, masks);
  y.pow(2).mean().backward();
  distributed::run_local(size, [&, ring = ring](const Group& g) {
    TransformerEncoderLayerArgs over_ranks = options;
    over_ranks.attention = attention_of(g, ring);
    TransformerEncoderLayer mine(kTokenWidth, kHeads, over_ranks);
    ranks::set_parameters(mine, 1);
    const Tensor part = mine(split_sequence(x, 1, g), masks);
    expect_close(part, split_sequence(y, 1, g), 1e-5, "result");
    expect_close(distributed::join_sequence(part, 1, g), y, 1e-5, "joined");
    sum_gradients_of_ranks(mine, g);
    (part.pow(2).mean() / g.size()).backward();
    const std::vector<Tensor> found = mine.parameters(), expected = one.parameters();
    for (size_t i = 0; i < found.size(); ++i) {
      expect_close(found[i].grad(), expected[i].grad(), 1e-4, "gradient " + std::to_string(i));
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, ContextParallel,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool(),
                                            ::testing::Bool()));

TEST(AttentionFunction, ExcludesWhatItDoesNotCompute) {
  const AttentionFunction plain = [](const Tensor& q, const Tensor& k, const Tensor& v,
                                     bool causal) {
    return mytorch::scaled_dot_product_attention(q, k, v, {}, 0, causal);
  };
  ranks::expect_error(
      [&] { MultiheadAttention(kTokenWidth, kHeads, {.dropout = 0.1, .attention = plain}); },
      "excludes dropout");
  ranks::expect_error(
      [&] { MultiheadAttention(kTokenWidth, kHeads, {.add_zero_attn = true, .attention = plain}); },
      "add_zero_attn");
  MultiheadAttention attention(kTokenWidth, kHeads, {.batch_first = true, .attention = plain});
  MultiheadAttention usual(kTokenWidth, kHeads, {.batch_first = true});
  ranks::set_parameters(attention, 0);
  ranks::set_parameters(usual, 0);
  const Tensor x = tokens();
  ranks::expect_error([&] { attention(x, x, x, AttentionMasks{}); }, "need_weights = false");
  ranks::expect_error(
      [&] {
        attention(
            x, x, x,
            AttentionMasks{.attn_mask = mytorch::zeros({kTokens, kTokens}), .need_weights = false});
      },
      "no mask but is_causal");
  for (const bool causal : {false, true}) {
    const AttentionMasks masks{.is_causal = causal, .need_weights = false};
    expect_close(std::get<0>(attention(x, x, x, masks)), std::get<0>(usual(x, x, x, masks)), 1e-6,
                 "result");
  }
}

}  // namespace
}  // namespace mytorch::nn
