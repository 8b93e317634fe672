#include "graph/ir/min_cut.h"

#include <random>
#include <utility>

#include "gtest/gtest.h"
#include "tests/core/random_seed.h"

namespace mytorch::graph {
namespace {

TEST(MinCut, TakesTheLightestNodeOfAPathNextToTheSink) {
  MinCut cut({4, 2, 3, 2});
  for (int i = 0; i < 3; ++i) cut.edge(i, i + 1);
  cut.source(0);
  cut.sink(3);
  EXPECT_EQ(cut.run(), (std::vector<bool>{false, false, false, true}));
}

TEST(MinCut, IsEmptyWithoutAPath) {
  MinCut cut({1, 1});
  cut.source(0);
  cut.sink(1);
  EXPECT_EQ(cut.run(), (std::vector<bool>{false, false}));
}

// Beside all sets of nodes of small graphs.
TEST(MinCut, NoSetThatSeparatesIsLighter) {
  const uint64_t seed = testing::random_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 draw(seed);
  for (int round = 0; round < 300; ++round) {
    const auto size = static_cast<int32_t>(2 + draw() % 8);
    std::vector<uint64_t> weights;
    std::vector<std::pair<int32_t, int32_t>> edges;
    std::vector<bool> source, sink;
    for (int32_t i = 0; i < size; ++i) {
      weights.push_back(draw() % 5);
      source.push_back(draw() % 4 == 0);
      sink.push_back(draw() % 4 == 0);
      for (int32_t j = 0; j < i; ++j) {
        if (draw() % 3 == 0) edges.emplace_back(j, i);
      }
    }
    MinCut cut(weights);
    for (int32_t i = 0; i < size; ++i) {
      if (source[i]) cut.source(i);
      if (sink[i]) cut.sink(i);
    }
    for (const auto& [from, to] : edges) cut.edge(from, to);
    const auto weight_of = [&](uint32_t set) {
      uint64_t sum = 0;
      for (int32_t i = 0; i < size; ++i) sum += (set >> i & 1) != 0 ? weights[i] : 0;
      return sum;
    };
    const auto separates = [&](uint32_t set) {
      std::vector<bool> reached(size);
      for (int32_t i = 0; i < size; ++i) {
        for (const auto& [from, to] : edges) {
          if (to == i && reached[from]) reached[i] = true;
        }
        reached[i] = (reached[i] || source[i]) && (set >> i & 1) == 0;
        if (reached[i] && sink[i]) return false;
      }
      return true;
    };
    uint64_t least = UINT64_MAX;
    for (uint32_t set = 0; set < 1u << size; ++set) {
      if (separates(set)) least = std::min(least, weight_of(set));
    }
    const std::vector<bool> found = cut.run();
    uint32_t set = 0;
    for (int32_t i = 0; i < size; ++i) set |= found[i] ? 1u << i : 0;
    EXPECT_TRUE(separates(set)) << round;
    EXPECT_EQ(weight_of(set), least) << round;
  }
}

}  // namespace
}  // namespace mytorch::graph
