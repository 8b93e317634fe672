// Forms of calls that programs for libtorch and Python use.
#include <gtest/gtest.h>

#include <vector>

#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

using Sizes = std::vector<int64_t>;

TEST(Forms, ANumberOrAListInBracesSuitsOneOverload) {
  const Tensor x = tensor({{3.0, 1, 2}, {5, 6, 4}});
  EXPECT_TRUE(argsort(x, 1).equal(tensor({{1, 2, 0}, {2, 0, 1}})));
  EXPECT_TRUE(argsort(x, 1, true).equal(tensor({{0, 2, 1}, {1, 0, 2}})));
  EXPECT_TRUE(argsort(x, int64_t{0}).equal(tensor({{0, 0, 0}, {1, 1, 1}})));
  EXPECT_TRUE(argsort(x, true, 1).equal(argsort(x, 1)));
  const Tensor points = tensor({{0.0, 0}, {1, 1}, {1, 0}});
  EXPECT_TRUE(std::get<0>(histogramdd(points, {2, 2})).equal(tensor({{1.0, 0}, {1, 1}})));
  EXPECT_EQ(std::get<0>(histogramdd(points, 3)).sizes().vec(), (Sizes{3, 3}));
  const Tensor edges = tensor({0.0, 0.5, 1});
  EXPECT_TRUE(std::get<0>(histogramdd(points, {edges, edges})).equal(tensor({{1.0, 0}, {1, 1}})));
}

TEST(Forms, UniqueDim) {
  const Tensor x = tensor({{1, 2}, {0, 1}, {1, 2}});
  const auto [rows, inverse, counts] = unique_dim(x, 0, true, true, true);
  EXPECT_TRUE(rows.equal(tensor({{0, 1}, {1, 2}})));
  EXPECT_TRUE(inverse.equal(tensor({1, 0, 1})));
  EXPECT_TRUE(counts.equal(tensor({1, 2})));
}

}  // namespace
}  // namespace mytorch
