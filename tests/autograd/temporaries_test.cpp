// Operators that could compute with temporaries much larger than their operands and results: what
// they give, and the memory that they take.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mytorch/ops.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

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
