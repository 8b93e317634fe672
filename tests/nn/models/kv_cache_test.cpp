// Caches of keys and values: cached attention equals causal attention over all tokens.
#include "mytorch/nn/kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/ops/attention_forward.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/stack.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::values;

// Whether values are the first features of keys, which a cache stores once.
bool values_are_part = false;

constexpr int64_t kLayers = 2, kHeads = 2, kQueries = 4, kWidth = 8, kValueWidth = 6;

// The queries, keys and values of one token in one layer: a function of its sequence, position and
// layer alone.
struct LayerInputs {
  Tensor query, key, value;
};
LayerInputs inputs(int64_t sequence, int64_t begin, int64_t count, int64_t layer) {
  const auto wave = [&](int64_t heads, int64_t width, double phase) {
    std::vector<double> numbers;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = begin; i < begin + count; ++i) {
        for (int64_t d = 0; d < width; ++d) {
          const auto at = static_cast<double>(((sequence * 7 + layer) * 5 + h) * 31 + d);
          numbers.push_back(std::sin(phase + at + 1.7 * static_cast<double>(i * (d + 1))));
        }
      }
    }
    return mytorch::testing::filled({heads, count, width}, numbers);
  };
  const Tensor key = wave(kHeads, kWidth, 2);
  return {wave(kQueries, kWidth, 1), key,
          values_are_part ? key.narrow(-1, 0, kValueWidth) : wave(kHeads, kValueWidth, 3)};
}

// The inputs of counts[n] tokens of sequence n from begin[n], followed by padding to the longest.
LayerInputs batch(const std::vector<int64_t>& sequences, const std::vector<int64_t>& begin,
                  const std::vector<int64_t>& counts, int64_t layer) {
  int64_t length = 0;
  for (const int64_t count : counts) length = std::max(length, count);
  std::vector<Tensor> q, k, v;
  for (size_t n = 0; n < begin.size(); ++n) {
    // Padding is large, so that its use would be noticed.
    const auto padded = [&](const Tensor& x) {
      return cat({x, randn({x.size(0), length - counts[n], x.size(2)}) * 100}, 1);
    };
    const LayerInputs one = inputs(sequences[n], begin[n], counts[n], layer);
    q.push_back(padded(one.query));
    k.push_back(padded(one.key));
    v.push_back(padded(one.value));
  }
  const Tensor keys = stack(k);
  return {stack(q), keys, values_are_part ? keys.narrow(-1, 0, kValueWidth) : stack(v)};
}

// The attention of tokens begin..begin + count of a sequence without a cache.
Tensor expected(int64_t sequence, int64_t begin, int64_t count, int64_t layer,
                const CachedAttentionArgs& options) {
  const LayerInputs all = inputs(sequence, 0, begin + count, layer);
  const int64_t left = options.window == 0 ? -1 : options.window - 1;
  const Tensor whole = std::get<0>(attention_forward(
      all.query.unsqueeze(0), all.key.unsqueeze(0), all.value.unsqueeze(0), {}, options.slopes,
      left, 0, 0, options.softcap, options.scale.value_or(1 / std::sqrt(double{kWidth})), 0));
  return whole.squeeze(0).narrow(1, begin, count);
}

// Sequences whose attention is compared after each step.
class Decoder {
 public:
  Decoder(KVCache cache, CachedAttentionArgs options = {})
      : cache(std::move(cache)), options_(std::move(options)) {
    for (int64_t n = 0; n < this->cache.batch_size(); ++n) sequences.push_back(n);
  }
  void step(const std::vector<int64_t>& counts) {
    const std::vector<int64_t> begin = cache.lengths();
    int64_t longest = 0;
    for (const int64_t count : counts) longest = std::max(longest, count);
    const bool padded = counts != std::vector<int64_t>(counts.size(), longest);
    if (padded) cache.set_counts(counts);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const LayerInputs now = batch(sequences, begin, counts, layer);
      const Tensor found = cache.attend(layer, now.query, now.key, now.value, options_);
      for (size_t n = 0; n < counts.size(); ++n) {
        const Tensor other = expected(sequences[n], begin[n], counts[n], layer, options_);
        const Tensor difference =
            (found.select(0, static_cast<int64_t>(n)).narrow(1, 0, counts[n]) - other).abs();
        if (counts[n] == 0) continue;
        EXPECT_LT(difference.max().item<double>(), 1e-5)
            << "sequence " << n << ", layer " << layer << ", " << begin[n] << " + " << counts[n];
      }
    }
    for (size_t n = 0; n < counts.size(); ++n) {
      ASSERT_EQ(cache.lengths()[n], begin[n] + counts[n]);
    }
  }

  KVCache cache;
  std::vector<int64_t> sequences;  // which sequence of `inputs` each of the batch is

 private:
  CachedAttentionArgs options_;
};

// The tests below run with both kinds of memory, each with values of their own and values that are
// a part of the keys.
class Caches : public ::testing::TestWithParam<std::tuple<int64_t, bool>> {
 protected:
  void SetUp() override { values_are_part = std::get<1>(GetParam()); }
  void TearDown() override { values_are_part = false; }
  KVCache make(int64_t batch_size, int64_t capacity, int64_t num_blocks = 0) {
    const int64_t size = std::get<0>(GetParam());
    return {kLayers,
            batch_size,
            capacity,
            {.block_size = size, .num_blocks = size > 0 ? num_blocks : 0}};
  }
};
INSTANTIATE_TEST_SUITE_P(ContiguousAndPaged, Caches,
                         ::testing::Combine(::testing::Values(0, 1, 3, 16), ::testing::Bool()),
                         [](const auto& info) {
                           const int64_t size = std::get<0>(info.param);
                           const bool part = std::get<1>(info.param);
                           return (size == 0 ? std::string("Contiguous")
                                             : "Blocks" + std::to_string(size)) +
                                  (part ? "PartOfKeys" : "");
                         });

TEST_P(Caches, EqualAttentionOverAllTokens) {
  const NoGradGuard no_grad;
  Decoder decoder(make(2, 13));
  for (const int64_t count : {5, 1, 1, 3, 0, 1, 2}) decoder.step({count, count});
  EXPECT_EQ(decoder.cache.max_length(), decoder.cache.capacity());
}

TEST_P(Caches, TakeSequencesOfDifferentLengths) {
  const NoGradGuard no_grad;
  Decoder decoder(make(3, 12));
  decoder.step({5, 2, 7});
  EXPECT_FALSE(decoder.cache.common_length().has_value());
  decoder.step({1, 1, 1});
  decoder.step({1, 0, 1});  // the second has ended
  decoder.step({2, 3, 1});
  decoder.step({0, 4, 2});
  EXPECT_EQ(decoder.cache.lengths(), (std::vector<int64_t>{9, 10, 12}));
}

TEST_P(Caches, TakeScalesWindowsSoftcapsAndSlopes) {
  const NoGradGuard no_grad;
  for (const CachedAttentionArgs& options :
       {CachedAttentionArgs{.scale = 0.5}, CachedAttentionArgs{.softcap = 1.5},
        CachedAttentionArgs{.window = 3},
        CachedAttentionArgs{.slopes = tensor({0.5, 0.25, 0.125, 0.0625})}}) {
    Decoder decoder(make(2, 16), options);
    decoder.step({4, 4});
    decoder.step({1, 1});
    decoder.step({6, 2});
    decoder.step({1, 1});
    decoder.step({2, 3});
  }
}

TEST_P(Caches, ForgetAndGoOn) {
  const NoGradGuard no_grad;
  Decoder decoder(make(2, 8));
  decoder.step({8, 8});
  decoder.cache.truncate({3, 5});
  decoder.step({1, 1});
  decoder.step({4, 2});
  decoder.cache.reset(0);
  EXPECT_EQ(decoder.cache.lengths(), (std::vector<int64_t>{0, 8}));
  decoder.step({6, 0});
  decoder.cache.reset();
  decoder.step({8, 8});
}

TEST_P(Caches, ReorderCopiesSequencesAndResizesTheBatch) {
  const NoGradGuard no_grad;
  Decoder decoder(make(2, 12, 24));
  const auto reorder = [&](const std::vector<int64_t>& sources) {
    decoder.cache.reorder(sources);
    std::vector<int64_t> sequences;
    for (const int64_t source : sources) {
      sequences.push_back(decoder.sequences[static_cast<size_t>(source)]);
    }
    decoder.sequences = sequences;
  };
  decoder.step({4, 2});
  reorder({1, 0, 1});
  EXPECT_EQ(decoder.cache.lengths(), (std::vector<int64_t>{2, 4, 2}));
  decoder.step({1, 1, 2});  // copies of a sequence go on by themselves
  reorder({2, 2, 0, 1});
  decoder.step({3, 1, 0, 2});
  decoder.step({1, 1, 1, 1});
  reorder({1});
  decoder.step({5});
}

TEST_P(Caches, ASequenceOfABatchEqualsItAlone) {
  const NoGradGuard no_grad;
  Decoder together(make(2, 8)), alone(make(1, 8));
  together.step({5, 2});
  alone.step({5});
}

TEST_P(Caches, KeepTensorsThatInferenceModeDoesNotOwn) {
  {
    const InferenceMode inference;
    Decoder decoder(make(1, 8));
  }
  Decoder decoder(make(1, 8));
  {
    const InferenceMode inference;
    decoder.step({2});
  }
  const NoGradGuard no_grad;
  decoder.step({1});
}

TEST_P(Caches, TakeNoSequencesAndNoTokens) {
  const NoGradGuard no_grad;
  Decoder none(make(0, 4));
  const Tensor found =
      none.cache.attend(0, randn({0, 4, 3, 8}), randn({0, 2, 3, 8}), randn({0, 2, 3, 6}));
  EXPECT_EQ(found.sizes().vec(), (std::vector<int64_t>{0, 4, 3, 6}));
  Decoder decoder(make(2, 4));
  decoder.step({0, 0});
  decoder.step({4, 4});
}

TEST_P(Caches, MaskTellsWhatAppendReturns) {
  const NoGradGuard no_grad;
  Decoder decoder(make(2, 8));
  decoder.step({1, 3});
  expect_values(decoder.cache.positions(2), {1, 2, 3, 4});
  const Tensor mask = decoder.cache.mask(2);
  EXPECT_EQ(mask.sizes().vec(), (std::vector<int64_t>{2, 1, 2, 5}));
  expect_values(mask, {1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1});
  expect_values(decoder.cache.mask(2, kCPU, 2),
                {1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1});
  const LayerInputs now = batch({0, 1}, {1, 3}, {2, 2}, 0);
  const auto [keys, found] = decoder.cache.append(0, now.key, now.value);
  EXPECT_EQ(keys.sizes().vec(), (std::vector<int64_t>{2, 2, 5, 8}));
  expect_values(keys.select(0, 1), values(inputs(1, 0, 5, 0).key));
  expect_values(found.select(0, 0).narrow(1, 0, 3), values(inputs(0, 0, 3, 0).value));
}

TEST_P(Caches, AForwardThatFailsLeavesTheLengths) {
  const NoGradGuard no_grad;
  Decoder decoder(make(1, 8));
  decoder.step({3});
  const LayerInputs now = batch({0}, {3}, {2}, 0);
  decoder.cache.attend(0, now.query, now.key, now.value);  // and layer 1 never comes
  EXPECT_EQ(decoder.cache.lengths()[0], 3);
  decoder.step({5});
}

TEST_P(Caches, OverflowNamesTheSequenceAndChangesNothing) {
  const NoGradGuard no_grad;
  Decoder decoder(make(2, 4));
  decoder.step({2, 4});
  const LayerInputs now = batch({0, 1}, {2, 4}, {1, 1}, 0);
  expect_error(ErrorCode::kValue, {"[KVCache] sequence 1", "4 tokens", "capacity of 4", "larger"},
               [&] { decoder.cache.attend(0, now.query, now.key, now.value); });
  decoder.step({2, 0});
}

TEST_P(Caches, MistakesSayHowToMendThem) {
  KVCache cache = make(1, 8);
  const auto x = [](int64_t heads, int64_t count) { return randn({1, heads, count, 4}); };
  expect_error(ErrorCode::kValue, {"layer 1", "complete forward", "in order"},
               [&] { cache.append(1, x(2, 1), x(2, 1)); });
  expect_error(ErrorCode::kValue, {"no layer 2 among 2"},
               [&] { cache.append(2, x(2, 1), x(2, 1)); });
  expect_error(ErrorCode::kValue, {"gradient", "NoGradGuard"},
               [&] { cache.append(0, x(2, 1).requires_grad_(), x(2, 1)); });
  expect_error(ErrorCode::kShape, {"(1, 2, 1, 4)", "(1, 3, 1, 4)"},
               [&] { cache.append(0, x(2, 1), x(3, 1)); });
  expect_error(ErrorCode::kType, {"float32", "float64"},
               [&] { cache.append(0, x(2, 1), x(2, 1).to(kFloat64)); });
  cache.append(0, x(2, 1), x(2, 1));
  expect_error(ErrorCode::kShape, {"layer 1 appends 2 tokens", "1"},
               [&] { cache.append(1, x(2, 2), x(2, 2)); });
  expect_error(ErrorCode::kShape, {"3 heads", "2 heads"},
               [&] { cache.append(1, x(3, 1), x(3, 1)); });
  cache.append(1, x(2, 1), x(2, 1));
  expect_error(ErrorCode::kShape, {"float64", "float32", "reset"},
               [&] { cache.append(0, x(2, 1).to(kFloat64), x(2, 1).to(kFloat64)); });
  cache.reset();
  cache.append(0, x(3, 1).to(kFloat64), x(3, 1).to(kFloat64));  // an empty cache takes any
  expect_error(ErrorCode::kShape, {"multiple"},
               [&] { cache.attend(0, x(3, 1), x(2, 1), x(2, 1)); });
  expect_error(ErrorCode::kValue, {"truncate to length 5", "0 tokens"},
               [&] { cache.truncate({5}); });
  expect_error(ErrorCode::kShape, {"truncate", "2 lengths"}, [&] { cache.truncate({0, 0}); });
  expect_error(ErrorCode::kValue, {"no sequence 1"}, [&] { cache.reset(1); });
  expect_error(ErrorCode::kValue, {"no sequence -1"}, [&] { cache.reorder({0, -1}); });
  expect_error(ErrorCode::kShape, {"set_counts"}, [&] { cache.set_counts({1, 1}); });
  cache.set_counts({4});
  expect_error(ErrorCode::kValue, {"set_counts", "sequence 0 4 tokens", "has 2"},
               [&] { cache.append(0, x(2, 2), x(2, 2)); });
}

TEST(KVCache, LastReturnsTheLastTokenThatIsNoPadding) {
  KVCache cache(1, 2, 8);
  const Tensor output = randn({2, 3, 4});
  expect_values(cache.last(output), values(output.narrow(1, 2, 1)));
  cache.set_counts({1, 3});
  const Tensor found = cache.last(output);
  EXPECT_EQ(found.sizes().vec(), (std::vector<int64_t>{2, 1, 4}));
  expect_values(found.select(0, 0), values(output[0][0]));
  expect_values(found.select(0, 1), values(output[1][2]));
  expect_error(ErrorCode::kShape, {"(2, length, features)", "(3, 3, 4)"}, [&] {
    cache.last(randn({3, 3, 4}));
  });
}

TEST(KVCache, ValuesThatArePartOfTheKeysAreStoredOnce) {
  const NoGradGuard no_grad;
  KVCache cache(1, 2, 8);
  const Tensor key = randn({2, 1, 3, 8});
  const auto [keys, found] = cache.append(0, key, key.narrow(-1, 0, 6));
  EXPECT_EQ(keys.raw_data(), found.raw_data());
  EXPECT_TRUE(keys.strides() == found.strides());
  expect_values(found, values(key.narrow(-1, 0, 6)));
  const Tensor none = randn({2, 1, 0, 8});
  cache.append(0, none, none.narrow(-1, 0, 6));
  expect_error(ErrorCode::kShape, {"a part of the keys", "reset"},
               [&] { cache.append(0, key, key.narrow(-1, 0, 6).clone()); });
  expect_error(ErrorCode::kShape, {"a part of the keys", "reset"},
               [&] { cache.append(0, key, key.narrow(-1, 2, 6)); });
  cache.reset();
  const auto [own_keys, own] = cache.append(0, key, key.narrow(-1, 2, 6));
  EXPECT_NE(own_keys.raw_data(), own.raw_data());
  expect_values(own, values(key.narrow(-1, 2, 6)));
}

TEST(KVCache, SequencesShareAPoolOfBlocks) {
  const NoGradGuard no_grad;
  KVCache cache(1, 3, 100, {.block_size = 4, .num_blocks = 6});
  const auto step = [&](const std::vector<int64_t>& counts, int64_t length) {
    cache.set_counts(counts);
    cache.append(0, randn({cache.batch_size(), 1, length, 2}),
                 randn({cache.batch_size(), 1, length, 2}));
  };
  EXPECT_EQ(cache.free_blocks(), 6);
  step({9, 1, 4}, 9);
  EXPECT_EQ(cache.free_blocks(), 1);
  step({3, 3, 0}, 3);  // fit in the blocks that they have
  EXPECT_EQ(cache.free_blocks(), 1);
  expect_error(ErrorCode::kValue, {"need 3 blocks of 4 tokens", "1 of 6 are free", "num_blocks"},
               [&] {
                 step({1, 1, 1}, 1);
               });
  EXPECT_EQ(cache.lengths(), (std::vector<int64_t>{12, 4, 4}));
  cache.reset(0);
  EXPECT_EQ(cache.free_blocks(), 4);
  cache.reorder({1, 1, 1, 2});  // shares blocks
  EXPECT_EQ(cache.free_blocks(), 4);
  cache.truncate({3, 3, 3, 4});
  step({1, 1, 1, 0}, 1);  // writes in a block that three share: two copies
  EXPECT_EQ(cache.free_blocks(), 2);
  cache.reset();
  EXPECT_EQ(cache.free_blocks(), 6);
}

TEST(KVCache, OptionsAreChecked) {
  expect_error(ErrorCode::kValue, {"capacity is 0"}, [] { KVCache(1, 1, 0); });
  expect_error(ErrorCode::kValue, {"batch_size is -1"}, [] { KVCache(1, -1, 4); });
  expect_error(ErrorCode::kValue, {"num_blocks", "block_size"},
               [] { KVCache(1, 1, 4, {.num_blocks = 3}); });
  EXPECT_EQ(KVCache(KVCacheOptions(2, 3, 4).block_size(2)).free_blocks(), 6);
}

}  // namespace
}  // namespace mytorch::nn
