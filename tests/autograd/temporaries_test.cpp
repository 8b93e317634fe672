// Operators that could compute with temporaries much larger than their operands and results: what
// they give, and the memory that they take.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/ops.h"
#include "tests/autograd/peak_memory.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// ---- draws ----

TEST(Multinomial, DrawsWithReplacementTakeTheMemoryOfWeightsAndDraws) {
  const Tensor weights = rand({20000}, kFloat32, {}, Generator(1));
  const int64_t grown = growth([&] { multinomial(weights, 40000, true, Generator(2)); });
  if (grown < 0) GTEST_SKIP() << "this system does not tell the peak";
  EXPECT_LT(grown, 16 * kMiB);
}

TEST(Multinomial, DrawsAreInProportionToTheWeights) {
  const Tensor weights = tensor({1.0, 0.0, 3.0, 0.0, 4.0, 0.0}, kFloat32);
  const Tensor draws = multinomial(weights, 80000, true, Generator(3));
  const Values counts = values(bincount(draws, {}, 6));
  const double expected[] = {10000, 0, 30000, 0, 40000, 0};
  // Five standard deviations of the largest count.
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(counts[i], expected[i], expected[i] == 0 ? 0 : 710) << i;
}

TEST(Multinomial, EachRowHasItsOwnWeights) {
  const Tensor draws = multinomial(eye(5, kFloat64), 3, true, Generator(4));
  EXPECT_EQ(values(draws), (Values{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}));
}

TEST(Multinomial, WeightsMayBeAsSmallOrLargeAsTheirType) {
  for (const double scale : {1e-310, 8e307}) {
    const Tensor weights = tensor({0.0, 1.0, 1.0, 0.0}, kFloat64) * scale;
    const Values counts = values(bincount(multinomial(weights, 4000, true, Generator(5)), {}, 4));
    EXPECT_EQ(counts[0] + counts[3], 0) << scale;
    EXPECT_NEAR(counts[1], 2000, 160) << scale;
  }
}

// ---- search ----

TEST(SearchSorted, CountsWhatPrecedesInAnyOrderOfTheElements) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> line, elements = {nan, -1, 0, 1e9};
  for (int i = 0; i < 300; ++i) line.push_back(i / 3);
  for (int i = 0; i < 200; ++i) elements.push_back(i * 37 % 101 / 2.0);
  for (int i = 0; i < 200; ++i) elements.push_back(i / 2.0);  // in order
  Values before, after;
  for (const double x : elements) {
    before.push_back(std::isnan(x) ? 300
                                   : std::lower_bound(line.begin(), line.end(), x) - line.begin());
    after.push_back(std::isnan(x) ? 302
                                  : std::upper_bound(line.begin(), line.end(), x) - line.begin());
  }
  line.insert(line.end(), {nan, nan});
  for (const ScalarType type : {kFloat64, kFloat32, kFloat16}) {
    const Tensor sorted = plain(line).to(type), x = plain(elements).to(type);
    EXPECT_EQ(values(searchsorted(sorted, x)), before) << dtype_name(type);
    EXPECT_EQ(values(searchsorted(sorted, x, true, true)), after) << dtype_name(type);
    EXPECT_EQ(values(searchsorted(sorted, x, false, false, "right")), after) << dtype_name(type);
  }
}

TEST(SearchSorted, EveryRowIsSearchedInItsOwn) {
  const Tensor rows = tensor({1.0, 2.0, 3.0, 10.0, 20.0, 30.0}, kFloat32).reshape({2, 3});
  const Tensor x = tensor({2.0, 25.0, 2.0, 25.0}, kFloat32).reshape({2, 2});
  EXPECT_EQ(values(searchsorted(rows, x)), (Values{1, 3, 0, 2}));
  const Tensor columns = rows.t().contiguous().t();
  EXPECT_EQ(values(searchsorted(columns, x, true)), (Values{1, 3, 0, 2}));
}

TEST(RepeatInterleave, NumbersOfRepeatsMayBeZero) {
  const Tensor repeats = tensor(std::vector<int64_t>{0, 2, 0, 0, 3, 1, 0});
  EXPECT_EQ(values(repeat_interleave(repeats)), (Values{1, 1, 4, 4, 4, 5}));
}

}  // namespace
}  // namespace mytorch
