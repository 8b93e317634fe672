// Statistics of values whose mean is large beside their spread.
#include <gtest/gtest.h>

#include <cmath>

#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

// (rows, channels) of 1000, 1001, 1002, 1003, 1000, ... in each channel, plus 10 per channel.
Tensor steps(int64_t rows, int64_t channels, double first) {
  const Tensor places = arange(rows, kInt64).remainder(4).to(kFloat32).unsqueeze(1) + first;
  return (places + arange(channels, kFloat32) * 10).contiguous();
}

void expect_statistics(const Tensor& input, double first) {
  const auto [out, mean, var] = batch_norm_training(input, {}, {}, 1e-5);
  for (int64_t c = 0; c < mean.numel(); ++c) {
    const double expected = first + 1.5 + 10 * static_cast<double>(c);
    EXPECT_NEAR(mean.select(0, c).item<double>(), expected, 1e-6 * expected) << "channel " << c;
    EXPECT_NEAR(var.select(0, c).item<double>(), 1.25, 1e-5) << "channel " << c;
  }
  EXPECT_NEAR(out.select(0, 0).select(0, 0).flatten().select(0, 0).item<double>(),
              -1.5 / std::sqrt(1.25), 1e-4);
}

TEST(Statistics, BatchNormOfALargeMeanAndOfManyRows) {
  const Prefer onednn("cpu", "cpu-onednn");
  expect_statistics(steps(256, 1, 1048576), 1048576);
  expect_statistics(steps(1000000, 3, 1000), 1000);
  const Tensor image = steps(40000, 5, 1000).reshape({4, 100, 100, 5}).permute({0, 3, 1, 2});
  expect_statistics(image, 1000);
  expect_statistics(image.contiguous(), 1000);
  expect_statistics(image.select(2, 0).contiguous().narrow(2, 0, 4).contiguous(), 1000);
}

// 300 rows of 1e30 and -1e30 in turns, whose squares exceed float32.
TEST(Statistics, LayerNormOfLargeNumbers) {
  const Prefer onednn("cpu", "cpu-onednn");
  const Tensor signs = (arange(300 * 256, kInt64).remainder(2) * -2 + 1).to(kFloat32);
  const Tensor x = (signs * 1e30).reshape({300, 256}).detach().requires_grad_();
  const Tensor y = layer_norm(x, {256});
  EXPECT_LT((y.flatten() - signs).abs().max().item<double>(), 1e-6);
  // (g - u * mean(g * u)) / 1e30 for g = 1, 1, -1, -1, ... with unit rows u.
  const Tensor g = (arange(300 * 256, kInt64).remainder(4).lt(2).to(kFloat32) * 2 - 1);
  (y.flatten() * g).sum().backward();
  EXPECT_LT((x.grad().flatten() * 1e30 - g).abs().max().item<double>(), 1e-5);
}

}  // namespace
}  // namespace mytorch
