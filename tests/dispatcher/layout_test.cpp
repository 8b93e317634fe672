// Memory formats: convolution, pooling and batch normalization follow an argument's layout, as in
// ATen.
#include "dispatcher/frame/layout.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

// For 4 and 5 dimensions.
Tensor channels_last(const Tensor& x) {
  std::vector<int64_t> to(x.dim()), back(x.dim());
  for (int64_t d = 1; d < x.dim(); ++d) to[d] = d + 1 < x.dim() ? d + 1 : 1;
  for (int64_t d = 0; d < x.dim(); ++d) back[to[d]] = d;
  return x.permute(to).contiguous().permute(back);
}

TEST(Layout, DependsOnStridesAlone) {
  EXPECT_FALSE(is_channels_last(rand({2, 3, 4, 5})));
  EXPECT_TRUE(is_channels_last(channels_last(rand({2, 3, 4, 5}))));
  EXPECT_TRUE(is_channels_last(channels_last(rand({2, 3, 4, 5, 2}))));
  EXPECT_FALSE(is_channels_last(rand({2, 4, 3}).permute({0, 2, 1})));  // not for 3 dimensions
  EXPECT_FALSE(is_channels_last(rand({2, 3, 5, 4}).permute({0, 1, 3, 2})));
  EXPECT_FALSE(is_channels_last(rand({2, 3, 1, 1})));
  EXPECT_TRUE(is_channels_last(rand({2, 1, 1, 3}).permute({0, 3, 1, 2})));
  EXPECT_FALSE(is_channels_last(rand({2, 1, 4, 5})));
  EXPECT_TRUE(is_channels_last(rand({2, 4, 5, 1}).permute({0, 3, 1, 2})));
  EXPECT_FALSE(is_channels_last(rand({2, 1, 1, 1})));
  EXPECT_FALSE(is_channels_last(rand({1}).expand({2, 3, 4, 5})));
  EXPECT_TRUE(is_channels_last(channels_last(rand({2, 6, 8, 5})).slice(1, 0, 3)));
  EXPECT_FALSE(is_channels_last(Tensor()));
}

void expect_last(const Tensor& result, const Tensor& expected) {
  EXPECT_TRUE(is_channels_last(result)) << shape_str(result.strides());
  EXPECT_FALSE(is_channels_last(expected)) << shape_str(expected.strides());
  EXPECT_TRUE(allclose(result, expected, 1e-4, 1e-5));
}

TEST(Layout, ConvolutionFollowsInputOrWeight) {
  const Tensor x = rand({2, 3, 6, 5}), w = rand({4, 3, 3, 3}), b = rand({4});
  const Tensor y = conv2d(x, w, b);
  expect_last(conv2d(channels_last(x), w, b), y);
  expect_last(conv2d(x, channels_last(w), b), y);
  const Tensor volume = rand({2, 3, 4, 5, 4}), kernel = rand({4, 3, 2, 2, 2});
  expect_last(conv3d(channels_last(volume), kernel), conv3d(volume, kernel));
  expect_last(conv_transpose2d(channels_last(y), w), conv_transpose2d(y, w));
  // Inputs without a batch dimension are row-major.
  EXPECT_TRUE(conv2d(x.select(0, 0), w).is_contiguous());
  const auto gradient = [&](const Tensor& grad, const Tensor& weight) {
    return convolution_backward_input(grad, weight, x.sizes(), {1, 1}, {0, 0}, {1, 1}, false,
                                      {0, 0}, 1);
  };
  expect_last(gradient(channels_last(y), w), gradient(y, w));
  expect_last(gradient(y, channels_last(w)), gradient(y, w));
}

TEST(Layout, WeightGradientFollowsTheWeight) {
  const Tensor x = rand({2, 3, 6, 5}), w = rand({4, 3, 3, 3});
  const Tensor y = conv2d(x, w);
  const auto gradient = [&](const Tensor& weight) {
    return convolution_backward_weight(channels_last(y), x, w.sizes(), {1, 1}, {0, 0}, {1, 1},
                                       false, {0, 0}, 1, weight.strides());
  };
  expect_last(gradient(channels_last(w)), gradient(w));
  // The gradient of a weight that is not dense is row-major.
  EXPECT_TRUE(gradient(rand({1}).expand(w.sizes())).is_contiguous());
  const Tensor leaf = channels_last(w).detach().requires_grad_();
  conv2d(x, leaf).sum().backward();
  EXPECT_EQ(shape_str(leaf.grad().strides()), shape_str(leaf.strides()));
}

TEST(Layout, PoolingFollowsTheInput) {
  const Tensor x = rand({2, 11, 6, 5}), last = channels_last(x);
  const auto [best, places] = max_pool2d_with_indices(x, {2, 2});
  const auto [best_last, places_last] = max_pool2d_with_indices(last, {2, 2});
  expect_last(best_last, best);
  expect_last(places_last.to(kFloat32), places.to(kFloat32));
  expect_last(avg_pool2d(last, {2, 2}), avg_pool2d(x, {2, 2}));
  expect_last(max_pool2d_with_indices_backward(best, x.sizes(), places_last),
              max_pool2d_with_indices_backward(best, x.sizes(), places));
  expect_last(adaptive_avg_pool2d(last, {3, 5}), adaptive_avg_pool2d(x, {3, 5}));
}

TEST(Layout, SizesThatExceedAnyMemoryAreRefused) {
  const Tensor grad = channels_last(rand({1, 2, 2, 2}));
  const Tensor places = channels_last(zeros({1, 2, 2, 2}, kInt64));
  const int64_t size = int64_t{1} << 40;
  EXPECT_THROW(max_pool2d_with_indices_backward(grad, {1, 2, size, size}, places), Error);
  // A tensor without elements takes no memory, but its strides must exist.
  const auto empty = [&](int64_t height) {
    return max_pool2d_with_indices_backward(grad.narrow(0, 0, 0), {0, 2, height, size},
                                            places.narrow(0, 0, 0));
  };
  EXPECT_EQ(empty(4).sizes(), (IntList{0, 2, 4, size}));
  EXPECT_THROW(empty(size), Error);
}

TEST(Layout, BatchNormFollowsTheInput) {
  const Tensor x = rand({2, 3, 6, 5}), last = channels_last(x), w = rand({3});
  const auto [y, mean, var] = batch_norm_training(x, w, {}, 1e-5);
  const auto [y_last, mean_last, var_last] = batch_norm_training(last, w, {}, 1e-5);
  expect_last(y_last, y);
  EXPECT_TRUE(mean_last.is_contiguous());
  const auto dx = std::get<0>(batch_norm_training_backward(y, x, w, mean, var, 1e-5));
  expect_last(std::get<0>(batch_norm_training_backward(y, last, w, mean, var, 1e-5)), dx);
  EXPECT_EQ(std::get<0>(batch_norm_training_backward(y, last, w, mean, var, 1e-5, {0, 1, 1})).dim(),
            1);
}

// The gradient of a flattened vector is row-major, whatever the shape of the features.
TEST(Layout, GradientOfAMeanFollowsItsInput) {
  for (const int64_t size : {1, 2}) {
    const Tensor x = channels_last(rand({2, 3, 4, 4})).detach().requires_grad_();
    const Tensor weight = rand({3 * size * size});
    mul(adaptive_avg_pool2d(x, {size, size}).flatten(1), weight).sum().backward();
    EXPECT_TRUE(is_channels_last(x.grad())) << shape_str(x.grad().strides());
    const Tensor expected = weight.view({3, size, size})
                                .unsqueeze(2)
                                .unsqueeze(4)
                                .expand({3, size, 4 / size, size, 4 / size})
                                .reshape({3, 4, 4});
    EXPECT_TRUE(allclose(
        x.grad(), div(expected, 16.0 / static_cast<double>(size * size)).expand({2, 3, 4, 4})));
  }
}

}  // namespace
}  // namespace mytorch
