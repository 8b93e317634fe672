#include "graph/steps/memory.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/core/random_seed.h"

namespace mytorch::graph {
namespace {

TEST(Placement, ValuesInUseTogetherDoNotOverlap) {
  const uint64_t seed = testing::random_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> values(random() % 60);
    uint64_t sum = 0;
    for (Lifetime& value : values) {
      value.first = random() % 40;
      value.last = value.first + random() % 10;
      value.bytes = random() % 1000;
      sum += (value.bytes + 63) / 64 * 64;
    }
    const Placement placement = place_lifetimes(values);
    ASSERT_EQ(placement.offsets.size(), values.size());
    EXPECT_LE(placement.bytes, sum);
    uint64_t most = 0;  // in use at one step: no block can be smaller
    for (size_t step = 0; step < 50; ++step) {
      uint64_t used = 0;
      for (const Lifetime& value : values) {
        if (value.first <= step && step <= value.last) used += value.bytes;
      }
      most = std::max(most, used);
    }
    EXPECT_GE(placement.bytes, most);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(placement.offsets[i] % 64, 0u);
      EXPECT_LE(placement.offsets[i] + values[i].bytes, placement.bytes);
      for (size_t k = 0; k < i; ++k) {
        const bool together =
            values[i].first <= values[k].last && values[k].first <= values[i].last;
        const bool apart = placement.offsets[i] + values[i].bytes <= placement.offsets[k] ||
                           placement.offsets[k] + values[k].bytes <= placement.offsets[i];
        EXPECT_TRUE(!together || apart) << i << " and " << k;
      }
    }
  }
}

TEST(Placement, AChainTakesTwoPlaces) {
  std::vector<Lifetime> chain;
  for (size_t i = 0; i < 10; ++i) chain.push_back({128, i, i + 1});
  EXPECT_EQ(place_lifetimes(chain).bytes, 256u);
}

}  // namespace
}  // namespace mytorch::graph
