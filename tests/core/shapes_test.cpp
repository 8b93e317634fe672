// Arithmetic on shapes: broadcasting, checked sizes, strides without gaps.
#include <gtest/gtest.h>

#include <limits>

#include "core/types/broadcast.h"
#include "core/types/checked.h"
#include "core/types/strides.h"
#include "mytorch/mytorch.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

using testing::expect_error;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(Checked, ReturnsValuesThatFit) {
  EXPECT_EQ(checked(Wide{kMost} - 1 + 1, "f", "the size"), kMost);
  EXPECT_EQ(checked(-Wide{kMost} - 1, "f", "the size"), std::numeric_limits<int64_t>::min());
}

TEST(Checked, NamesTheValueThatOverflows) {
  expect_error(ErrorCode::kShape, {"[f] the size exceeds the range of int64"},
               [] { checked(Wide{kMost} * kMost, "f", "the size"); });
  expect_error(ErrorCode::kShape, {"[f] the size exceeds"},
               [] { checked(-Wide{kMost} - 2, "f", "the size"); });
}

TEST(CheckedProduct, OfAnEmptyShapeIsZero) {
  EXPECT_EQ(checked_product({int64_t{1} << 40, 0, 3}, "f"), 0);
  EXPECT_EQ(checked_product({}, "f"), 1);
}

TEST(CheckedProduct, RefusesEmptyShapesWhoseStridesOverflow) {
  expect_error(ErrorCode::kShape, {"has too many elements, were its zeros ones"}, [] {
    checked_product({kMost, kMost, 0}, "f");
  });
}

TEST(Views, CannotHaveMoreElementsThanInt64Counts) {
  const int64_t big = int64_t{1} << 33;
  const Tensor x = zeros({1, 1});
  expect_error(ErrorCode::kShape, {"(8589934592, 8589934592) has too many elements"}, [&] {
    x.expand({big, big});
  });
  const Tensor none = zeros({1, 0, 1});
  expect_error(ErrorCode::kShape, {"has too many elements, were its zeros ones"}, [&] {
    none.expand({big, 0, big});
  });
  EXPECT_EQ(none.expand({big, 0, 4}).numel(), 0);
}

TEST(CheckedProduct, RefusesShapesWithMoreElementsThanInt64Counts) {
  expect_error(ErrorCode::kShape, {"has too many elements"}, [] {
    checked_product({kMost, 2}, "f");
  });
}

TEST(BroadcastShapes, AlignsTheLastDimensions) {
  EXPECT_EQ(broadcast_shapes({2, 1, 3}, {4, 1}, "f"), (Dims{2, 4, 3}));
  EXPECT_EQ(broadcast_shapes({}, {0, 1}, "f"), (Dims{0, 1}));
  EXPECT_EQ(broadcast_shapes({0}, {1}, "f"), Dims{0});
}

TEST(BroadcastShapes, NamesTheDimensionThatDiffers) {
  expect_error(ErrorCode::kShape,
               {"[f] shapes (2, 3) and (4, 3) do not broadcast: counted from the last dimension, "
                "sizes must be equal or 1, and 2 meets 4 in dimension -2"},
               [] {
                 broadcast_shapes({2, 3}, {4, 3}, "f");
               });
}

TEST(BroadcastsTo, KeepsTheTargetsShape) {
  EXPECT_TRUE(broadcasts_to({1, 3}, {2, 3}));
  EXPECT_TRUE(broadcasts_to({}, {2, 3}));
  EXPECT_FALSE(broadcasts_to({2, 3}, {1, 3}));
  EXPECT_FALSE(broadcasts_to({1, 1, 3}, {1, 3}));
}

TEST(PackedStrides, SortsDimensionsFromTheFastest) {
  const Dims old = {1, 4, 2};
  const auto slower = [&](int64_t a, int64_t b) { return old[a] > old[b] ? 1 : -1; };
  EXPECT_EQ(packed_strides({2, 3, 5}, slower), (Dims{1, 10, 2}));
  EXPECT_EQ(packed_strides({2, 3, 5}, [](int64_t, int64_t) { return 0; }), (Dims{15, 5, 1}));
}

}  // namespace
}  // namespace mytorch
