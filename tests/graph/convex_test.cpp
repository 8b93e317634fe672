#include "graph/ir/convex.h"

#include <random>

#include "gtest/gtest.h"

namespace mytorch::graph {
namespace {

using Before = std::vector<std::vector<int32_t>>;
using Nodes = std::vector<int32_t>;

TEST(ConvexParts, ADiamondWithoutItsMiddleIsTwoParts) {
  //   0 -> 1 -> 3, 0 -> 2 -> 3
  ConvexParts parts(Before{{}, {0}, {0}, {1, 2}});
  EXPECT_TRUE(parts.join(0, 1));
  EXPECT_FALSE(parts.join(0, 3));  // 2 would run between
  EXPECT_EQ(parts.part(1), (Nodes{0, 1}));
  EXPECT_EQ(parts.part(3), (Nodes{3}));
  EXPECT_EQ(parts.order(), (Nodes{0, 2, 3}));
  EXPECT_TRUE(parts.join(2, 0));
  EXPECT_TRUE(parts.join(3, 1));
  EXPECT_EQ(parts.part(2), (Nodes{0, 1, 2, 3}));
}

TEST(ConvexParts, TwoPartsDoNotNeedEachOther) {
  // Each of {0, 3} and {1, 2} is convex, but 0 -> 1 and 2 -> 3.
  ConvexParts parts(Before{{}, {0}, {}, {2}});
  EXPECT_TRUE(parts.join(1, 2));
  EXPECT_FALSE(parts.join(0, 3));
  EXPECT_EQ(parts.order(), (Nodes{0, 1, 3}));
}

TEST(ConvexParts, APartRunsWhenAllItsNodesCan) {
  // 0 waits for 1, on which 2 depends.
  ConvexParts parts(Before{{}, {}, {1}, {0}});
  EXPECT_TRUE(parts.join(0, 2));
  EXPECT_EQ(parts.order(), (Nodes{1, 0, 3}));
}

TEST(ConvexParts, LongPathsCount) {
  Before before(200);
  for (int32_t i = 1; i < 200; ++i) before[i] = {i - 1};
  ConvexParts parts(before);
  EXPECT_FALSE(parts.join(0, 199));
  for (int32_t i = 1; i < 199; ++i) EXPECT_TRUE(parts.join(0, i)) << i;
  EXPECT_TRUE(parts.join(199, 77));
  EXPECT_EQ(parts.order(), Nodes{0});
}

// Two regions that take turns along a chain of 40,000 nodes, beside each other: the time grows with
// the graph, not with its square.
TEST(ConvexParts, LargeGraphsTakeNoLonger) {
  constexpr int32_t kSize = 40'000;
  Before before(kSize);
  for (int32_t i = 2; i < kSize; ++i) before[i] = {i - 2};
  ConvexParts parts(before);
  for (int32_t i = 2; i < kSize; ++i) ASSERT_TRUE(parts.join(i % 2, i));
  EXPECT_EQ(parts.order(), (Nodes{0, 1}));
  EXPECT_EQ(parts.part(0).size(), kSize / 2);
}

// Any joins leave parts that can run one after the other, in the order that is given.
TEST(ConvexParts, RandomPartsCanRun) {
  std::mt19937_64 draw(1);
  const auto below = [&](int64_t n) {
    return static_cast<int32_t>(std::uniform_int_distribution<int64_t>(0, n - 1)(draw));
  };
  for (int round = 0; round < 200; ++round) {
    const int32_t size = 2 + below(90);
    Before before(static_cast<size_t>(size));
    for (int32_t i = 1; i < size; ++i) {
      for (int32_t k = below(4); k > 0; --k) before[i].push_back(below(i));
    }
    ConvexParts parts(before);
    int joined = 0;
    for (int i = 0; i < size; ++i) joined += parts.join(below(size), below(size)) ? 1 : 0;
    std::vector<bool> ran(static_cast<size_t>(size));
    int count = 0;
    for (const int32_t first : parts.order()) {
      for (const int32_t node : parts.part(first)) {
        for (const int32_t other : before[node]) {
          EXPECT_TRUE(ran[other] || parts.part(other)[0] == first) << round;
        }
      }
      for (const int32_t node : parts.part(first)) {
        ran[node] = true;
        ++count;
      }
    }
    ASSERT_EQ(count, size) << "a cycle, after " << joined << " joins";
  }
}

}  // namespace
}  // namespace mytorch::graph
