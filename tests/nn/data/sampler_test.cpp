#include "mytorch/nn/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "tests/nn/data/expect_error.h"

namespace mytorch::nn::data {
namespace {

using mytorch::testing::expect_error;

TEST(SamplerTest, SequentialCountsUp) {
  EXPECT_EQ(SequentialSampler(4).indices(7), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_TRUE(SequentialSampler(0).indices(0).empty());
}

TEST(SamplerTest, RandomIsAPermutation) {
  for (int64_t size : {0, 1, 2, 1000}) {
    std::vector<int64_t> indices = RandomSampler(size, 3).indices(5);
    std::sort(indices.begin(), indices.end());
    EXPECT_EQ(indices, SequentialSampler(size).indices(0)) << size;
  }
}

TEST(SamplerTest, RandomDependsOnSeedAndEpochAlone) {
  const RandomSampler sampler(100, 1);
  EXPECT_EQ(sampler.indices(2), RandomSampler(100, 1).indices(2));
  EXPECT_NE(sampler.indices(2), sampler.indices(3));
  EXPECT_NE(sampler.indices(2), RandomSampler(100, 2).indices(2));
  EXPECT_NE(sampler.indices(2), RandomSampler(100, 2).indices(1));
  EXPECT_NE(sampler.indices(0), SequentialSampler(100).indices(0));
}

// These values must never change, so that runs can be reproduced on other machines and releases.
TEST(SamplerTest, RandomIsTheSameOnEveryPlatform) {
  EXPECT_EQ(RandomSampler(8, 0).indices(0), (std::vector<int64_t>{3, 5, 0, 2, 4, 7, 6, 1}));
  EXPECT_EQ(RandomSampler(8, 42).indices(1), (std::vector<int64_t>{6, 1, 3, 7, 5, 2, 0, 4}));
}

TEST(SamplerTest, RandomDrawsPermutationsUniformly) {
  std::array<int, 24> counts{};
  constexpr int kDraws = 24000;
  for (int epoch = 0; epoch < kDraws; ++epoch) {
    std::vector<int64_t> order = RandomSampler(4, 9).indices(static_cast<uint64_t>(epoch));
    int rank = 0;  // the permutation's index among the 24, in lexicographic order
    for (int i = 0; i < 4; ++i) {
      const auto smaller = std::count_if(order.begin() + i + 1, order.end(),
                                         [&](int64_t later) { return later < order[i]; });
      rank = rank * (4 - i) + static_cast<int>(smaller);
    }
    ++counts[rank];
  }
  double chi_squared = 0;
  for (int count : counts) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_squared, 49.7);  // the 0.1 % point of 23 degrees of freedom
}

TEST(SamplerTest, RejectsNegativeSizes) {
  expect_error(ErrorCode::kValue, {"[RandomSampler]", "-1"}, [] { RandomSampler(-1); });
  expect_error(ErrorCode::kValue, {"[SequentialSampler]", "-1"}, [] { SequentialSampler(-1); });
}

}  // namespace
}  // namespace mytorch::nn::data
