// x.index({...}) and x.index_put_({...}, values) with indices of several kinds, as NumPy and
// libtorch read them.
#include <gtest/gtest.h>

#include <vector>

#include "mytorch/ops/arange.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/tensor.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch {
namespace {

using indexing::Ellipsis;
using indexing::None;
using indexing::Slice;
using indexing::TensorIndex;
using testing::expect_error;
using testing::values;
using Numbers = std::vector<double>;

// Element (i, j, k) is 100 i + 10 j + k.
Tensor numbers() {
  return arange(2).reshape({2, 1, 1}) * 100 + arange(3).reshape({3, 1}) * 10 + arange(4);
}

void expect(const Tensor& found, IntList sizes, const Numbers& expected) {
  EXPECT_EQ(found.sizes().vec(), sizes.vec());
  EXPECT_EQ(values(found), expected);
}

TEST(TensorIndex, IntegersSelect) {
  const Tensor x = numbers();
  expect(x.index({1, 2, 3}), {}, {123});
  expect(x.index({0, 1}), {4}, {10, 11, 12, 13});
  expect(x.index({0, 0}), {4}, {0, 1, 2, 3});
  expect(x.index({-1, -3}), {4}, {100, 101, 102, 103});
}

TEST(TensorIndex, SlicesFollowPython) {
  const Tensor x = numbers();
  expect(x.index({0, Slice(1, None), 0}), {2}, {10, 20});
  expect(x.index({0, 0, Slice(None, None, 2)}), {2}, {0, 2});
  expect(x.index({0, 0, Slice(-3, -1)}), {2}, {1, 2});
  expect(x.index({Slice(), 1, 0}), {2}, {10, 110});
  expect(x.index({0, 0, Slice(3, 1)}), {0}, {});
}

TEST(TensorIndex, NoneAddsADimension) {
  const Tensor x = numbers();
  expect(x.index({None, 1, 2, None, 3}), {1, 1}, {123});
  EXPECT_EQ(x.index({None}).sizes().vec(), (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(TensorIndex, AnEllipsisStandsForTheOtherDimensions) {
  const Tensor x = numbers();
  expect(x.index({"...", 3}), {2, 3}, {3, 13, 23, 103, 113, 123});
  expect(x.index({1, Ellipsis, Slice(0, 1)}), {3, 1}, {100, 110, 120});
  expect(x.index({1, 2, Ellipsis, 3}), {}, {123});
  EXPECT_TRUE(x.index({Ellipsis}).is_same(x));
  EXPECT_TRUE(x.index({}).is_same(x));
}

TEST(TensorIndex, BoolsSelectAllOrNothingInANewDimension) {
  const Tensor x = tensor({1.0, 2, 3});
  expect(x.index({true}), {1, 3}, {1, 2, 3});
  expect(x.index({false}), {0, 3}, {});
}

TEST(TensorIndex, TensorsSelectPositions) {
  const Tensor x = numbers();
  const Tensor at = tensor(std::vector<int64_t>{2, 0, -1});
  expect(x.index({1, at, 3}), {3}, {123, 103, 123});
  expect(x.index({at.slice(0, 1, 2), "...", at}), {3, 3}, {2, 12, 22, 0, 10, 20, 3, 13, 23});
  expect(x.index({Tensor(), tensor(std::vector<int64_t>{1}), 0}), {2, 1}, {10, 110});
}

TEST(TensorIndex, MasksSelectTheirTrueElements) {
  const Tensor x = numbers();
  expect(x.index({1, 0, x[0][0] > 1}), {2}, {102, 103});
  expect(x.index({x > 121}), {2}, {122, 123});
  expect(x.index({"...", None, tensor({1, 0, 0, 0}, kBool)}), {2, 3, 1, 1},
         {0, 10, 20, 100, 110, 120});
}

TEST(TensorIndex, IndicesWithoutTensorsAreAView) {
  const Tensor x = numbers();
  const Tensor view = x.index({0, Slice(1, None, 2), None});
  view.fill_(-1);
  expect(x.index({0, 1}), {4}, {-1, -1, -1, -1});
  x.index({0, 0, x[0][0] == 3}).fill_(7);
  expect(x.index({0, 0}), {4}, {0, 1, 2, 3});
}

TEST(TensorIndex, BracketsAndParenthesesIndexToo) {
  const Tensor x = numbers();
  expect(x(1, 2, 3), {}, {123});
  expect(x(0, Slice(1, None), -1), {2}, {13, 23});
  expect(x[x > 121], {2}, {122, 123});
  expect(x[Slice(1, None)][0][0], {4}, {100, 101, 102, 103});
  EXPECT_EQ(x[None].dim(), 4);
}

TEST(TensorIndex, PutsNumbersAndTensors) {
  const Tensor x = zeros({2, 3});
  x.index_put_({0, 1}, 3.0);
  x.index_put_({1}, tensor({1.0, 2, 3}).reshape({1, 1, 3}));
  expect(x, {2, 3}, {0, 3, 0, 1, 2, 3});
  x.index_put_({x > 2}, 9);
  expect(x, {2, 3}, {0, 9, 0, 1, 2, 9});
  x.index_put_({0, tensor(std::vector<int64_t>{0, 0})}, tensor({1.0, 1}), /*accumulate=*/true);
  x.index_put_({Slice(), 2}, 1, /*accumulate=*/true);
  expect(x, {2, 3}, {2, 9, 1, 1, 2, 10});
  const std::vector<TensorIndex> indices{1, "...", 0};
  x.index_put_(indices, 5);
  expect(x.index(indices), {}, {5});
}

TEST(TensorIndex, HasGradients) {
  const Tensor x = zeros({2, 3}).requires_grad_();
  const Tensor at = tensor(std::vector<int64_t>{1, 1});
  sum(x.index({0, Slice(1, None)}) * 2 + x.index({1, at})).backward();
  expect(x.grad(), {2, 3}, {0, 2, 2, 0, 2, 0});
  const Tensor value = tensor({7.0}).requires_grad_();
  const Tensor y = x * 1;
  y.index_put_({1, Slice(0, 2)}, value);
  x.set_grad({});
  sum(y).backward();
  expect(x.grad(), {2, 3}, {1, 1, 1, 0, 0, 1});
  expect(value.grad(), {1}, {2});
}

TEST(TensorIndex, RefusesWhatDoesNotFit) {
  const Tensor x = numbers();
  expect_error(ErrorCode::kShape, {"[index]", "4 dimensions", "(2, 3, 4)"}, [&] {
    x.index({0, 0, 0, 0});
  });
  expect_error(ErrorCode::kValue, {"[index]", "index 3", "dimension 1"}, [&] { x.index({0, 3}); });
  expect_error(ErrorCode::kValue, {"ellipses"}, [&] { x.index({"...", 0, "..."}); });
  expect_error(ErrorCode::kValue, {"\":\""}, [&] { x.index({":", 0}); });
  expect_error(ErrorCode::kType, {"[index]", "float32"}, [&] { x.index({tensor({1.0})}); });
}

}  // namespace
}  // namespace mytorch
