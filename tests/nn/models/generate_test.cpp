// Generation: processors of logits against sorts in double, frequencies of draws, and cached
// decoding against recomputation.
#include "mytorch/nn/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/rotary.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/argmax.h"
#include "mytorch/ops/gelu.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/scaled_dot_product_attention.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using mytorch::testing::kInfinity;
using mytorch::testing::values;

// ---- processors ----

using Row = std::vector<double>;

Row probabilities(const Row& logits) {
  Row out;
  for (const double x : logits) out.push_back(std::exp(x));
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& x : out) x /= sum;
  return out;
}

// Applies `function` to each row.
template <class F>
Row rows(const Tensor& logits, const F& function) {
  Row out;
  for (const Tensor& row : logits) {
    const Row one = function(values(row));
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

Tensor some_logits(ScalarType dtype = kFloat32) {
  return (randn({7, 50}, dtype, kCPU, Generator(3)) * 3);
}

TEST(Logits, TopKKeepsTheLargest) {
  for (const int64_t k : {1, 5, 49, 50, 1000}) {
    expect_values(logits::top_k(some_logits(), k), rows(some_logits(), [&](Row row) {
                    Row sorted = row;
                    std::sort(sorted.begin(), sorted.end(), std::greater<>());
                    const double least = sorted[static_cast<size_t>(std::min<int64_t>(k, 50)) - 1];
                    for (double& x : row) x = x >= least ? x : -kInfinity;
                    return row;
                  }));
  }
  expect_values(logits::top_k(tensor({{1., 3., 2., 3.}}), 1), {-kInfinity, 3, -kInfinity, 3});
}

TEST(Logits, TopPKeepsTheFewestThatReachP) {
  for (const double p : {0.0, 0.1, 0.5, 0.9, 0.999, 1.0}) {
    expect_values(logits::top_p(some_logits(kFloat64), p),
                  rows(some_logits(kFloat64), [&](Row row) {
                    const Row probability = probabilities(row);
                    std::vector<size_t> order(row.size());
                    std::iota(order.begin(), order.end(), 0);
                    std::sort(order.begin(), order.end(),
                              [&](size_t a, size_t b) { return row[a] > row[b]; });
                    double before = 0;
                    for (const size_t i : order) {
                      if (before >= p && i != order[0] && p < 1) row[i] = -kInfinity;
                      before += probability[i];
                    }
                    return row;
                  }));
  }
  // Probabilities 0.5, 0.3, 0.2: the first reaches 0.5 by itself.
  const Tensor known = tensor({{std::log(0.3), std::log(0.5), std::log(0.2)}}, kFloat64);
  expect_values(logits::top_p(known, 0.5), {-kInfinity, std::log(0.5), -kInfinity});
  expect_values(logits::top_p(known, 0.51), {std::log(0.3), std::log(0.5), -kInfinity});
}

TEST(Logits, MinPKeepsWhatIsLikelyBesideTheLikeliest) {
  for (const double p : {0.0, 0.01, 0.2, 1.0}) {
    expect_values(logits::min_p(some_logits(), p), rows(some_logits(), [&](Row row) {
                    const Row probability = probabilities(row);
                    const double most = *std::max_element(probability.begin(), probability.end());
                    for (size_t i = 0; i < row.size(); ++i) {
                      if (probability[i] < p * most) row[i] = -kInfinity;
                    }
                    return row;
                  }));
  }
}

TEST(Logits, RepetitionPenaltyCountsATokenOnce) {
  const Tensor x = tensor({{2., -2., 0., 4.}, {2., -2., 0., 4.}});
  const Tensor ids = tensor({{0, 1, 0, 0}, {3, 2, 3, 2}});
  expect_values(logits::repetition_penalty(x, ids, 2), {1, -4, 0, 4, 2, -2, 0, 2});
  expect_values(logits::repetition_penalty(x, zeros({2, 0}, kInt64), 2), values(x));
}

TEST(Logits, TemperatureDivides) {
  expect_values(logits::temperature(tensor({{2., -3.}}), 0.5), {4, -6});
}

TEST(Logits, SixteenBitLogitsAreComputedInFloat32) {
  const Tensor x = some_logits().to(kBFloat16);
  for (const Tensor& y :
       {logits::top_k(x, 3), logits::top_p(x, 0.9), logits::min_p(x, 0.1),
        logits::temperature(x, 0.7), logits::repetition_penalty(x, zeros({7, 1}, kInt64), 1.3)}) {
    EXPECT_EQ(y.dtype(), kFloat32);
  }
  expect_values(logits::top_p(x, 0.9), values(logits::top_p(x.to(kFloat32), 0.9)));
}

TEST(Logits, SamplesHaveTheProbabilitiesOfTheSoftmax) {
  constexpr int64_t kDraws = 40000;
  const Row weights{1, -0.5, -kInfinity, 2, 0};
  const Row expected = probabilities(weights);
  const Tensor drawn = logits::sample(tensor(weights, kFloat32).expand({kDraws, 5}), Generator(11));
  Row counts(5);
  for (const int64_t token : drawn.to_vector<int64_t>()) counts[static_cast<size_t>(token)] += 1;
  double chi_squared = 0;
  for (size_t i = 0; i < 5; ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(counts[i], 0);
    } else {
      const double mean = expected[i] * kDraws;
      chi_squared += (counts[i] - mean) * (counts[i] - mean) / mean;
    }
  }
  EXPECT_LT(chi_squared, 16.3);  // 3 degrees of freedom: exceeded with probability 0.001
}

TEST(Logits, MistakesSayHowToMendThem) {
  const Tensor x = some_logits();
  expect_error(ErrorCode::kShape, {"[top_k]", "(50,)", "(sequences, tokens)"},
               [&] { logits::top_k(x[0], 3); });
  expect_error(ErrorCode::kShape, {"[top_p]", "int64"}, [&] { logits::top_p(x.to(kInt64), 0.5); });
  expect_error(ErrorCode::kValue, {"[top_k]", "k is 0"}, [&] { logits::top_k(x, 0); });
  expect_error(ErrorCode::kValue, {"[top_p]", "1.5"}, [&] { logits::top_p(x, 1.5); });
  expect_error(ErrorCode::kValue, {"[min_p]", "nan"}, [&] { logits::min_p(x, std::nan("")); });
  expect_error(ErrorCode::kValue, {"[temperature]", "0"}, [&] { logits::temperature(x, 0); });
  expect_error(ErrorCode::kValue, {"[repetition_penalty]", "-1"}, [&] {
    logits::repetition_penalty(x, zeros({7, 1}, kInt64), -1);
  });
  expect_error(ErrorCode::kShape, {"[repetition_penalty]", "(7, length)"}, [&] {
    logits::repetition_penalty(x, zeros({6, 1}, kInt64), 2);
  });
  for (const double bad : {std::nan(""), kInfinity}) {
    Tensor broken = some_logits();
    broken[2][4].fill_(bad);
    expect_error(ErrorCode::kValue, {"[sample]", "NaN"}, [&] { logits::sample(broken); });
  }
  expect_error(ErrorCode::kValue, {"[sample]", "-infinity"},
               [&] { logits::sample(x * 0 - kInfinity); });
}

// ---- generate ----

constexpr int64_t kVocabulary = 11;

// A causal language model of two layers.
struct Model : Callable<Model> {
  struct Block : Callable<Block> {
    Linear qkv{8, 24};
    Linear out{8, 8};
    RotaryEmbedding rope{4};
    Block() {
      register_module("qkv", qkv);
      register_module("out", out);
      register_module("rope", rope);
    }
    Tensor forward(const Tensor& x, int64_t layer, KVCache* cache) {
      std::vector<Tensor> parts = qkv(x).chunk(3, -1);
      for (Tensor& part : parts) part = part.unflatten(-1, {2, 4}).transpose(1, 2);
      const Tensor q = rope(parts[0], cache), k = rope(parts[1], cache);
      const Tensor y = cache != nullptr ? cache->attend(layer, q, k, parts[2])
                                        : scaled_dot_product_attention(q, k, parts[2], {}, 0, true);
      return x + out(y.transpose(1, 2).flatten(2));
    }
  };
  Embedding embedding{kVocabulary, 8};
  Block first, second;
  Dropout dropout{0.5};
  Linear head{8, kVocabulary};
  bool last_only = false;
  Model() {
    register_module("embedding", embedding);
    register_module("first", first);
    register_module("second", second);
    register_module("dropout", dropout);
    register_module("head", head);
    const NoGradGuard no_grad;
    double phase = 0;
    for (const Tensor& parameter : parameters()) {
      std::vector<double> numbers;
      for (int64_t i = 0; i < parameter.numel(); ++i) {
        numbers.push_back(std::sin(phase += 1.1 + 0.01 * static_cast<double>(i)));
      }
      parameter.copy_(filled(parameter.sizes(), numbers));
    }
    eval();
  }
  Tensor forward(const Tensor& ids, KVCache* cache = nullptr) {
    Tensor x = dropout(second(first(embedding(ids), 0, cache), 1, cache));
    if (cache != nullptr && last_only) x = cache->last(x);
    return head(x);
  }
};

// Continues a prompt by recomputing everything for each token.
std::vector<int64_t> recomputed(Model& model, std::vector<int64_t> ids, int64_t count) {
  const NoGradGuard no_grad;
  std::vector<int64_t> made;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor logits = model(tensor(ids).unsqueeze(0));
    made.push_back(argmax(logits[0][-1], 0).item<int64_t>());
    ids.push_back(made.back());
  }
  return made;
}

const TokenLists kPrompts{{1, 2, 3}, {7}, {9, 9, 1, 0, 4, 5}};

TEST(Generate, CachedDecodingEqualsRecomputation) {
  Model model;
  for (const int64_t block_size : {0, 4}) {
    for (const bool last_only : {false, true}) {
      model.last_only = last_only;
      KVCache cache(2, 3, 25, {.block_size = block_size});
      const TokenLists made = generate(model, kPrompts, cache, {.max_new_tokens = 20});
      for (size_t n = 0; n < kPrompts.size(); ++n) {
        EXPECT_EQ(made[n], recomputed(model, kPrompts[n], 20)) << n;
      }
      // The cache is reset by the next call.
      EXPECT_EQ(generate(model, kPrompts, cache, {.max_new_tokens = 20}), made);
    }
  }
}

TEST(Generate, CachedLogitsEqualRecomputedLogits) {
  const NoGradGuard no_grad;
  Model model;
  const Tensor ids = tensor({{3, 1, 4, 1, 5, 9, 2, 6}, {5, 3, 5, 8, 9, 7, 9, 3}});
  const Tensor whole = model(ids);
  KVCache cache(2, 2, 8);
  for (const auto& [begin, count] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 1}, {5, 3}}) {
    expect_values(model(ids.narrow(1, begin, count), &cache), values(whole.narrow(1, begin, count)),
                  1e-5);
  }
}

TEST(Generate, TakesLambdasAndReferences) {
  Model model;
  KVCache cache(2, 1, 16);
  const TokenLists expected = generate(model, {{1, 2}}, cache, {.max_new_tokens = 5});
  EXPECT_EQ(generate([&](const Tensor& ids, KVCache& c) { return model(ids, &c); }, {{1, 2}}, cache,
                     {.max_new_tokens = 5}),
            expected);
  EXPECT_EQ(generate([&](const Tensor& ids, KVCache* c) { return model(ids, c); }, {{1, 2}}, cache,
                     {.max_new_tokens = 5}),
            expected);
}

// The next logits are a function of the last token: that of token t + 1 is the largest.
Tensor successor(const Tensor& ids, KVCache& /*cache*/) {
  const Tensor next = (ids + 1) % kVocabulary;
  return zeros({ids.size(0), ids.size(1), kVocabulary}).scatter(2, next.unsqueeze(-1), 1);
}

TEST(Generate, NeedsNoCacheForAModelWithoutLayers) {
  KVCache none(0, 2, 1);
  const TokenLists expected{{4, 5, 6}, {10, 0, 1}};
  EXPECT_EQ(generate(successor, {{2, 3}, {1, 1, 1, 9}}, none, {.max_new_tokens = 3}), expected);
}

TEST(Generate, StopsEachSequenceAtItsStopIds) {
  KVCache none(0, 3, 1);
  const TokenLists expected{{4, 5}, {10, 0, 1, 2, 3, 4, 5}, {7}};
  EXPECT_EQ(generate(successor, {{3}, {9}, {6}}, none, {.max_new_tokens = 9, .stop_ids = {7, 5}}),
            expected);
  // A model with a cache goes on with the others.
  Model model;
  KVCache cache(2, 3, 25);
  const TokenLists all = generate(model, kPrompts, cache, {.max_new_tokens = 20});
  const TokenLists some =
      generate(model, kPrompts, cache, {.max_new_tokens = 20, .stop_ids = {all[0][2]}});
  for (size_t n = 0; n < all.size(); ++n) {
    const auto stop = std::find(all[n].begin(), all[n].end(), all[0][2]);
    EXPECT_EQ(some[n], std::vector<int64_t>(all[n].begin(), stop + (stop == all[n].end() ? 0 : 1)));
  }
}

TEST(Generate, StreamsTokensAndStopsOnRequest) {
  KVCache none(0, 2, 1);
  std::vector<std::pair<int64_t, int64_t>> seen;
  const TokenLists made =
      generate(successor, {{0}, {5}}, none,
               {.max_new_tokens = 3, .on_token = [&](int64_t sequence, int64_t token) {
                  seen.emplace_back(sequence, token);
                  return token != 7;
                }});
  EXPECT_EQ(made, (TokenLists{{1, 2, 3}, {6, 7}}));
  EXPECT_EQ(seen,
            (std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 6}, {0, 2}, {1, 7}, {0, 3}}));
}

TEST(Generate, ProcessSeesTheTokensAndChangesTheLogits) {
  KVCache none(0, 1, 1);
  TokenLists last;
  const auto process = [&](const Tensor& logits, const TokenLists& tokens) {
    last = tokens;
    Tensor changed = logits.clone();
    changed.select(1, 3).fill_(tokens[0].size() == 3 ? 9 : 0);
    return changed;
  };
  EXPECT_EQ(generate(successor, {{5}}, none, {.max_new_tokens = 4, .process = process}),
            (TokenLists{{6, 7, 3, 4}}));
  EXPECT_EQ(last, (TokenLists{{5, 6, 7, 3}}));
}

TEST(Generate, PenaltiesApplyToPromptsAndNewTokens) {
  // Token 1 has the logit 4, 2 has 3, all others 0: the penalty of 4 makes each repetition 1.
  const auto constant = [](const Tensor& ids, KVCache&) {
    Tensor logits = zeros({ids.size(0), 1, 4});
    logits.select(2, 1).fill_(4);
    logits.select(2, 2).fill_(3);
    logits.select(2, 3).fill_(2);
    return logits;
  };
  KVCache none(0, 2, 1);
  EXPECT_EQ(generate(constant, {{1}, {0}}, none, {.max_new_tokens = 3, .repetition_penalty = 4}),
            (TokenLists{{2, 3, 1}, {1, 2, 3}}));
}

TEST(Generate, SeedsRepeatDraws) {
  Model model;
  KVCache cache(2, 3, 40);
  const auto draw = [&](uint64_t seed) {
    return generate(model, kPrompts, cache,
                    {.max_new_tokens = 30, .temperature = 2, .generator = Generator(seed)});
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  manual_seed(5);
  const TokenLists first = generate(model, kPrompts, cache, {.temperature = 2});
  manual_seed(5);
  EXPECT_EQ(generate(model, kPrompts, cache, {.temperature = 2}), first);
}

TEST(Generate, DrawsFollowTheProcessors) {
  // Logits ln(8, 4, 2, 1, ...): top-k 3 leaves 8 : 4 : 2; top-p 0.8 then 8 : 4.
  const auto constant = [](const Tensor& ids, KVCache&) {
    return tensor({std::log(8.), std::log(4.), std::log(2.), 0., -1., -2.})
        .to(kFloat32)
        .expand({ids.size(0), 1, 6});
  };
  constexpr size_t kSequences = 3000;
  KVCache none(0, kSequences, 1);
  const TokenLists prompts(kSequences, {0});
  const auto counts = [&](const GenerateArgs& options) {
    std::vector<double> counts(6);
    for (const auto& made : generate(constant, prompts, none, options)) {
      for (const int64_t token : made) counts[static_cast<size_t>(token)] += 1. / (kSequences * 4);
    }
    return counts;
  };
  const auto near = [](const Row& found, const Row& expected) {
    for (size_t i = 0; i < 6; ++i) {
      if (expected[i] == 0) {
        EXPECT_EQ(found[i], 0) << i;
      } else {
        EXPECT_NEAR(found[i], expected[i], 0.02) << i;  // more than four standard deviations
      }
    }
  };
  GenerateArgs options{
      .max_new_tokens = 4, .temperature = 1, .top_k = 3, .generator = Generator(2)};
  near(counts(options), {8. / 14, 4. / 14, 2. / 14, 0, 0, 0});
  options.top_p = 0.8;
  near(counts(options), {8. / 12, 4. / 12, 0, 0, 0, 0});
  options.temperature = 0.5;
  near(counts(options), {64. / 80, 16. / 80, 0, 0, 0, 0});
  options.top_p = 1;
  options.min_p = 0.2;
  near(counts(options), {64. / 80, 16. / 80, 0, 0, 0, 0});
}

TEST(Generate, RecordsNoGradients) {
  Model model;
  KVCache cache(2, 1, 4);
  bool enabled = true;
  generate(
      [&](const Tensor& ids, KVCache& c) {
        enabled = grad_enabled();
        return model(ids, &c);
      },
      {{1}}, cache, {.max_new_tokens = 2});
  EXPECT_FALSE(enabled);
  EXPECT_TRUE(model(tensor({{1, 2}})).requires_grad());
}

TEST(Generate, TakesNothing) {
  Model model;
  KVCache none(2, 0, 4), one(2, 1, 4);
  EXPECT_EQ(generate(model, {}, none), TokenLists());
  EXPECT_EQ(generate(model, {{1, 2, 3, 4}}, one, {.max_new_tokens = 0}), TokenLists{{}});
  EXPECT_EQ(generate(model, {{1, 2, 3, 4}}, one, {.max_new_tokens = 1})[0].size(), 1u);
}

TEST(Generate, MistakesSayHowToMendThem) {
  Model model;
  KVCache cache(2, 1, 8);
  const auto fails = [&](std::initializer_list<std::string> parts, const TokenLists& prompts,
                         const GenerateArgs& options, ErrorCode code = ErrorCode::kValue) {
    expect_error(code, parts, [&] { generate(model, prompts, cache, options); });
  };
  fails({"[generate] prompt 0 is empty"}, {{}}, {});
  fails({"1 sequences for 2 prompts", "batch_size = 2"}, {{1}, {2}}, {}, ErrorCode::kShape);
  fails({"prompt 0 of 4 tokens and 6 new ones need a cache of capacity 9, not 8"}, {{1, 2, 3, 4}},
        {.max_new_tokens = 6});
  fails({"max_new_tokens is -1"}, {{1}}, {.max_new_tokens = -1});
  fails({"temperature is -1"}, {{1}}, {.temperature = -1});
  fails({"no effect at temperature 0"}, {{1}}, {.top_k = 5});
  fails({"no effect at temperature 0"}, {{1}}, {.top_p = 0.5});
  fails({"top_p is 2"}, {{1}}, {.temperature = 1, .top_p = 2});
  fails({"repetition_penalty is 0"}, {{1}}, {.repetition_penalty = 0});
  model.train();
  fails({"Model is in training mode", "eval()"}, {{1}}, {.max_new_tokens = 2});
  const auto of = [&](const Tensor& logits) {
    return [&, logits](const Tensor&, KVCache&) { return logits; };
  };
  expect_error(ErrorCode::kValue, {"did not append", "cache.attend in each of the 2 layers"}, [&] {
    generate(of(zeros({1, 1, 3})), {{1}}, cache, {.max_new_tokens = 2});
  });
  KVCache none(0, 1, 1);
  expect_error(ErrorCode::kShape, {"shape (3, 2)", "(1, 2, V)"}, [&] {
    generate(of(zeros({3, 2})), {{1, 2}}, none);
  });
  expect_error(ErrorCode::kShape, {"undefined", "(1, 1, V)"},
               [&] { generate(of(Tensor()), {{1}}, none); });
  expect_error(ErrorCode::kShape, {"process returned", "(3,)"}, [&] {
    generate(of(zeros({1, 1, 3})), {{1}}, none,
             {.process = [](const Tensor& logits, const TokenLists&) { return logits[0]; }});
  });
}

}  // namespace
}  // namespace mytorch::nn
