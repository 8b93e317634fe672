// The iteration spaces of loops over other shapes.
#include "graph/fusion/loop_space.h"

#include "gtest/gtest.h"

namespace mytorch::graph {
namespace {

LoopSpace joined(const LoopSpace& a, const LoopSpace& b) {
  const std::optional<LoopSpace> space = common_space(a, b);
  return space.value_or(LoopSpace{{-1}});
}

TEST(LoopSpace, SplitsDimensionsUntilBothFit) {
  const LoopSpace a = space_of({8, 1, 10, 64}, 0), b = space_of({80, 64}, 0);
  EXPECT_EQ(joined(a, b).sizes, (Dims{8, 10, 64}));
  EXPECT_EQ(joined(b, a).sizes, (Dims{8, 10, 64}));
  EXPECT_EQ(joined(space_of({}, 0), space_of({1, 1}, 0)).sizes, Dims{});
  EXPECT_FALSE(common_space(space_of({4, 6}, 0), space_of({6, 4}, 0)).has_value());
  EXPECT_FALSE(common_space(space_of({4, 6}, 0), space_of({4, 5}, 0)).has_value());
}

TEST(LoopSpace, HasRowsOfOneLength) {
  const LoopSpace rows = space_of({4, 5, 6}, 1), planes = space_of({4, 5, 6}, 2);
  EXPECT_EQ(rows.rows(), 20);
  EXPECT_EQ(planes.rows(), 4);
  EXPECT_FALSE(common_space(rows, planes).has_value());
  EXPECT_EQ(joined(planes, space_of({4, 30}, 1)).inner(), 2);
  // One for each row.
  const LoopSpace both = joined(space_of({2, 10}, 0), rows);
  EXPECT_EQ(both.sizes, (Dims{2, 2, 5, 6}));
  EXPECT_EQ(both.columns, 6);
  EXPECT_FALSE(common_space(space_of({4}, 0), rows).has_value());
  EXPECT_EQ(joined(space_of({7, 1}, 1), space_of({7}, 0)).inner(), 0);
}

TEST(LoopSpace, StridesFollowTheDimensions) {
  const LoopSpace space{{2, 2, 5, 6}, 6};
  EXPECT_EQ(strides_in(space, {4, 5, 6}, {30, 6, 1}), (Dims{60, 30, 6, 1}));
  EXPECT_EQ(strides_in(space, {4, 1, 5, 6}, {1, 7, 4, 20}), (Dims{2, 1, 4, 20}));
  EXPECT_EQ(strides_in(space, {20}, {3}), (Dims{30, 15, 3, 0}));
  EXPECT_EQ(strides_in(space, {4, 5, 6}, {0, 1, 0}), (Dims{0, 0, 1, 0}));
}

}  // namespace
}  // namespace mytorch::graph
