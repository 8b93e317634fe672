// Max pooling with indices, unpooling, and pooling over random windows.
#include "mytorch/nn/unpooling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/nn/functional.h"
#include "mytorch/ops/equal.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/ge.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/golden.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

namespace F = functional;
using mytorch::testing::expect_error;
using mytorch::testing::filled;
using mytorch::testing::values;

double weighed(const Tensor& x) { return (x * wave(x.sizes().vec(), 0)).sum().item<double>(); }

// Numbers are PyTorch's.
TEST(MaxUnpool, PutsElementsWhereTheyWere) {
  const auto [y1, i1] =
      MaxPool1d(3, {.stride = 2, .padding = 1}).forward_with_indices(wave({2, 2, 7}, 0));
  EXPECT_EQ(values(i1), (std::vector<double>{1, 2, 3, 5, 1, 3, 4, 5, 0, 3, 5, 6, 0, 1, 5, 6}));
  const Tensor z1 = MaxUnpool1d(3, {.stride = 2, .padding = 1})(y1, i1);
  EXPECT_EQ(z1.sizes().vec(), (Shape{2, 2, 7}));
  EXPECT_NEAR(weighed(z1), 8.357512063225444, 1e-12);

  const Tensor x = wave({1, 2, 5, 6}, 0);
  const auto [y2, i2] = MaxPool2d({2, 3}, {.stride = 2}).forward_with_indices(x);
  EXPECT_EQ(values(i2), (std::vector<double>{2, 2, 20, 20, 8, 8, 18, 16}));
  MaxUnpool2d unpool({2, 3}, {.stride = 2});
  const Tensor whole = unpool(y2, i2, Shape{5, 6});
  EXPECT_NEAR(weighed(whole), 3.9056816317260363, 1e-12);
  EXPECT_TRUE(equal(whole, where(whole.ne(0), x, zeros_like(x))));
  EXPECT_TRUE(equal(unpool(y2, i2, Shape{1, 2, 5, 6}), whole));

  const auto [y3, i3] = MaxPool3d(2).forward_with_indices(wave({1, 1, 4, 4, 4}, 0));
  EXPECT_NEAR(weighed(MaxUnpool3d(2)(y3, i3)), 7.4238279775171385, 1e-12);
}

TEST(MaxUnpool, IsTheSameAsAFunctionAndWithoutABatch) {
  const Tensor x = wave({1, 2, 4, 6}, 0);
  const auto [y, i] = F::max_pool2d_with_indices(x, 2);
  const auto [y2, i2] = F::max_pool2d_with_indices(x, F::MaxPool2dFuncOptions(2));
  EXPECT_TRUE(equal(i, i2));
  const Tensor expected = MaxUnpool2d(2)(y, i);
  EXPECT_NEAR(weighed(expected), 8.931309131926842, 1e-12);
  EXPECT_TRUE(equal(F::max_unpool2d(y, i, 2, {.stride = 2}), expected));
  EXPECT_TRUE(equal(F::max_unpool2d(y, i, F::MaxUnpool2dFuncOptions(2).stride(2)), expected));
  EXPECT_TRUE(equal(MaxUnpool2d(2)(y[0], i[0]), expected[0]));
  const auto [a, at] = AdaptiveMaxPool2d({2, 3}).forward_with_indices(x);
  EXPECT_TRUE(equal(gather(x.flatten(2), 2, at.flatten(2)), a.flatten(2)));
}

TEST(MaxUnpool, RefusesSizesThatDoNotFit) {
  const auto [y, i] = F::max_pool2d_with_indices(wave({1, 2, 5, 6}, 0), 2);
  expect_error(ErrorCode::kShape, {"[max_unpool2d]", "(9, 9)", "dimension 0", "between 3 and 5"},
               [&, y = y, i = i] {
                 MaxUnpool2d(2)(y, i, Shape{9, 9});
               });
  expect_error(ErrorCode::kShape, {"[max_unpool2d]", "3 sizes", "give 2"}, [&, y = y, i = i] {
    MaxUnpool2d(2)(y, i, Shape{5, 6, 1});
  });
  expect_error(ErrorCode::kShape, {"[max_unpool2d]", "give 4 dimensions"}, [] {
    MaxUnpool2d(2)(ones({2, 2}), ones({2, 2}, kInt64));
  });
  expect_error(ErrorCode::kValue, {"[MaxUnpool3d]", "kernel_size"}, [] { MaxUnpool3d(-1); });
}

TEST(FractionalMaxPool, TakesMaximaOfTheGivenNumberOfWindows) {
  const Tensor x = randn({2, 3, 8, 10}).requires_grad_();
  FractionalMaxPool2d pool(2, {.output_ratio = {0.5, 0.6}});
  const auto [y, at] = pool.forward_with_indices(x);
  EXPECT_EQ(y.sizes().vec(), (Shape{2, 3, 4, 6}));
  EXPECT_TRUE(equal(gather(x.flatten(2), 2, at.flatten(2)), y.flatten(2)));
  y.sum().backward();
  EXPECT_EQ(x.grad().sum().item<float>(), 2 * 3 * 4 * 6);

  manual_seed(3);
  const Tensor first = FractionalMaxPool2d(2, {.output_size = 5})(x);
  manual_seed(3);
  EXPECT_TRUE(equal(
      F::fractional_max_pool2d(x, F::FractionalMaxPool2dFuncOptions(2).output_size(5)), first));
  EXPECT_FALSE(equal(FractionalMaxPool2d(2, {.output_size = 5})(x), first));
  EXPECT_EQ(
      FractionalMaxPool3d({2, 1, 1}, {.output_size = {2, 3, 4}})(randn({2, 4, 4, 5})).sizes().vec(),
      (Shape{2, 2, 3, 4}));
}

TEST(FractionalMaxPool, RefusesOptionsWithoutMeaning) {
  expect_error(ErrorCode::kValue, {"[FractionalMaxPool2d]", "either output_size or output_ratio"},
               [] { FractionalMaxPool2d(2); });
  expect_error(ErrorCode::kValue, {"either output_size or output_ratio"},
               [] { FractionalMaxPool2d(2, {.output_size = 3, .output_ratio = 0.5}); });
  expect_error(ErrorCode::kValue, {"output_ratio is 1.5"},
               [] { FractionalMaxPool2d(2, {.output_ratio = 1.5}); });
  expect_error(ErrorCode::kValue, {"2 numbers", "give 1 or 3"}, [] {
    FractionalMaxPool3d(2, {.output_ratio = {0.5, 0.5}});
  });
}

}  // namespace
}  // namespace mytorch::nn
