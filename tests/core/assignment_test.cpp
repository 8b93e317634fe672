// Assignment to tensors: a variable refers to another array, an element is written.
#include <gtest/gtest.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/ops/arange.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/tensor.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch {
namespace {

using indexing::Slice;
using testing::expect_error;
using testing::values;
using Numbers = std::vector<double>;

template <class T>
concept AssignableFrom = requires(Tensor& x, T value) {
  x = value;
};
static_assert(AssignableFrom<Tensor> && !AssignableFrom<double> && !AssignableFrom<int>);
static_assert(std::is_nothrow_move_assignable_v<Tensor>);

TEST(Assignment, ToAnElementWrites) {
  Tensor a = zeros({2, 3});
  a[0] = ones({3});
  EXPECT_EQ(values(a), (Numbers{1, 1, 1, 0, 0, 0}));
  a[1][2] = 3.0;
  a[1][0] = true;
  a[1][1] = tensor({5.0})[0];
  EXPECT_EQ(values(a), (Numbers{1, 1, 1, 1, 5, 3}));
  a[0] = a[1];
  EXPECT_EQ(values(a), (Numbers{1, 5, 3, 1, 5, 3}));
  a.slice(1, 0, 1) = 0;
  EXPECT_EQ(values(a), (Numbers{0, 5, 3, 0, 5, 3}));
  a.index({1, "..."}) = tensor({1.0, 2, 3});
  EXPECT_EQ(values(a[1]), (Numbers{1, 2, 3}));
}

TEST(Assignment, WithAnOperatorWritesElements) {
  const Tensor x = zeros({2, 2});
  x[0] += 4;
  x[0][1] /= tensor({2.0})[0];
  x(1, 0) -= 1;
  x.index({"...", 0}) *= 3;
  EXPECT_EQ(values(x), (Numbers{12, 2, -3, 0}));
  x[x > 0] += 1;
  EXPECT_EQ(values(x), (Numbers{13, 3, -3, 0}));
}

TEST(Assignment, ToSelectedElementsWrites) {
  Tensor x = arange(6).reshape({2, 3});
  x[x > 3] = 0;
  EXPECT_EQ(values(x), (Numbers{0, 1, 2, 3, 0, 0}));
  x.index({tensor({1, 0}), Slice(1)}) = tensor({{7, 8}, {9, 10}});
  EXPECT_EQ(values(x), (Numbers{0, 9, 10, 3, 7, 8}));
  x(Slice(), tensor({2, 0})) = x.index({Slice(), tensor({0, 2})});  // swaps two columns
  EXPECT_EQ(values(x), (Numbers{10, 9, 0, 8, 7, 3}));
  x[x == 10] = 2.5;  // is converted, as by copy_
  EXPECT_EQ(x[0][0].item<int64_t>(), 2);
  expect_error(ErrorCode::kValue, {"[=]", "undefined"}, [&] { x[x > 3] = Tensor(); });
  expect_error(ErrorCode::kShape, {"index_put"}, [&] { x[x > 3] = ones({7}); });
}

TEST(Assignment, WithAnOperatorWritesAViewOnce) {
  const Tensor x = zeros({2, 3});
  const uint64_t before = x.version();
  x.index({0, Slice(1)}) += 1;
  EXPECT_EQ(x.version(), before + 1);
  EXPECT_EQ(values(x), (Numbers{0, 1, 1, 0, 0, 0}));
}

TEST(Assignment, ASelectionInAVariableIsACopy) {
  Tensor x = zeros({3});
  const auto same = x[x == 0];
  auto chosen = x[x == 0];
  chosen.add_(1);
  chosen = ones({1});
  EXPECT_EQ(chosen.numel(), 1);
  Tensor plain = x[x == 0];
  plain = ones({2});
  EXPECT_EQ(values(x), (Numbers{0, 0, 0}));
  EXPECT_EQ(same.numel(), 3);
}

TEST(Assignment, ToSelectedElementsIsDifferentiated) {
  const Tensor x = tensor({1.0, 2, 3}).requires_grad_();
  const Tensor v = tensor({5.0}).requires_grad_();
  Tensor y = x * 2;
  y[y > 3] = v;
  sum(y * y).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{8, 0, 0}));
  EXPECT_EQ(values(v.grad()), (Numbers{20}));
}

TEST(Assignment, ToAVariableRefersToAnotherArray) {
  const Tensor x = zeros({2});
  Tensor row = x[0];
  row = ones({1});
  EXPECT_EQ(values(x), (Numbers{0, 0}));
  EXPECT_EQ(row.numel(), 1);
  row = {};
  EXPECT_FALSE(row.defined());
}

TEST(Assignment, ToAnElementConvertsAndBroadcasts) {
  Tensor a = zeros({2, 3}, kInt64);
  a[0] = tensor({2.0});
  EXPECT_EQ(values(a), (Numbers{2, 2, 2, 0, 0, 0}));
  expect_error(ErrorCode::kShape, {"(2,)", "(3,)"}, [&] { a[0] = ones({2}); });
}

TEST(Assignment, ToAnElementIsDifferentiated) {
  const Tensor x = tensor({1.0, 2}).requires_grad_();
  const Tensor v = tensor({4.0}).requires_grad_();
  Tensor y = x * 3;
  y[0] = v[0] * 2;
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{0, 3}));
  EXPECT_EQ(values(v.grad()), (Numbers{2}));
}

TEST(Assignment, ToACopyIsRefused) {
  Tensor x = zeros({3});
  expect_error(ErrorCode::kValue, {"[=]", "temporary"}, [&] { (x + 1) = ones({3}); });
  expect_error(ErrorCode::kValue, {"[=]", "undefined"}, [&] { x[0] = Tensor(); });
  float memory[2] = {1, 2};
  from_blob(memory, {2}, kFloat32)[0] = 5;
  EXPECT_EQ(memory[0], 5);
}

TEST(Assignment, SwapsAndMovesVariables) {
  Tensor a = tensor({1.0}), b = tensor({2.0, 3.0});
  std::swap(a, b);
  EXPECT_EQ(a.numel(), 2);
  std::vector<Tensor> list{a, b};
  list.erase(list.begin());
  EXPECT_TRUE(list[0].is_same(b));
}

TEST(Comparison, OfTwoTensors) {
  const Tensor a = tensor({1.0, 2}), b = tensor({1.0, 3});
  EXPECT_EQ(values(a == b), (Numbers{1, 0}));
  EXPECT_EQ(values(a != b), (Numbers{0, 1}));
  EXPECT_EQ(values(a == 2), (Numbers{0, 1}));
}

TEST(SetData, KeepsTheTensor) {
  const Tensor x = tensor({1.0, 2, 3}).requires_grad_();
  const Tensor handle = x;
  const Tensor view = x.detach()[1];
  sum(x * x).backward();
  x.set_grad({});
  x.set_data(tensor({4, 5, 6}, kFloat64));
  EXPECT_TRUE(handle.is_same(x));
  EXPECT_EQ(handle.dtype(), kFloat64);
  EXPECT_EQ(values(handle), (Numbers{4, 5, 6}));
  EXPECT_EQ(values(view), (Numbers{2}));  // of the former data
  sum(x * x).backward();
  EXPECT_EQ(x.grad().dtype(), kFloat64);
  EXPECT_EQ(values(x.grad()), (Numbers{8, 10, 12}));
}

TEST(SetData, KeepsTheFormerDataOfViews) {
  Tensor view;
  {
    const Tensor x = tensor({1.0, 2, 3});
    view = x[2];
    x.set_data(tensor({4.0, 5, 6}));
    x.set_data(tensor({7.0, 8, 9}));
    EXPECT_EQ(values(x), (Numbers{7, 8, 9}));
  }
  EXPECT_EQ(values(view), (Numbers{3}));
}

TEST(SetData, ReturnsTheMemoryOfLargeTensors) {
  const Tensor x = zeros({1 << 20});
  for (int i = 0; i < 3; ++i) {
    x.set_data(ones({1 << 20}, i == 1 ? kFloat64 : kFloat32));
    EXPECT_EQ(sum(x).item<double>(), 1 << 20);
  }
}

TEST(SetData, OfAHeldValueIsNoticedByBackward) {
  const Tensor x = tensor({1.0, 2}).requires_grad_();
  const Tensor y = sum(x * x);
  x.set_data(tensor({3.0, 4}));
  expect_error(ErrorCode::kValue, {"overwritten"}, [&] { y.backward(); });
}

TEST(SetData, RefusesOtherTensors) {
  const Tensor x = tensor({1.0, 2}).requires_grad_();
  expect_error(ErrorCode::kValue, {"[set_data]", "a view"}, [&] {
    x.detach().reshape({2, 1})[0].set_data(tensor({1.0}));
  });
  expect_error(ErrorCode::kValue, {"[set_data]", "result of an operation"}, [&] {
    (x * 2).set_data(tensor({1.0, 2}));
  });
  expect_error(ErrorCode::kShape, {"[set_data]", "(3,)", "(2,)"}, [&] {
    x.set_data(tensor({1.0, 2, 3}));
  });
  expect_error(ErrorCode::kType, {"[set_data]", "int64"}, [&] {
    x.set_data(tensor(std::vector<int64_t>{1, 2}));
  });
}

}  // namespace
}  // namespace mytorch
