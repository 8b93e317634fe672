// Options of lookups and of resizing.
#include <gtest/gtest.h>

#include <vector>

#include "mytorch/mytorch.h"

namespace mytorch::nn {
namespace {

// (3, 4) has the length 5 and the sum of magnitudes 7.
TEST(EmbeddingTest, MaxNormShortensTheRowsThatAreLookedUp) {
  const auto table = [] { return tensor({{3.0, 4.0}, {30.0, 40.0}, {0.3, 0.4}}); };
  const Tensor indices = tensor({{0, 2}, {0, 0}});
  Embedding embedding(EmbeddingOptions(3, 2).max_norm(1));
  embedding.weight.set_data(table());
  const Tensor short_rows = tensor({{0.6, 0.8}, {30.0, 40.0}, {0.3, 0.4}});
  const Tensor y = embedding(indices);
  EXPECT_TRUE(allclose(embedding.weight, short_rows));
  EXPECT_TRUE(y.detach().equal(functional::embedding(indices, embedding.weight.detach())));
  EXPECT_TRUE(embedding.weight[2].equal(table()[2]));
  y.sum().backward();
  EXPECT_TRUE(embedding.weight.grad().equal(tensor({{3.0, 3.0}, {0.0, 0.0}, {1.0, 1.0}})));

  Tensor weight = table();
  functional::embedding(indices, weight, {.max_norm = 1, .norm_type = 1});
  EXPECT_TRUE(allclose(weight, tensor({{3 / 7.0, 4 / 7.0}, {30.0, 40.0}, {0.3, 0.4}})));
  weight = table();
  functional::embedding(zeros({0}, kInt64), weight, {.max_norm = 1});
  EXPECT_TRUE(weight.equal(table()));

  EmbeddingBag bag(3, 2, {.mode = EmbeddingBagMode::kSum, .max_norm = 1});
  bag.weight.set_data(table());
  EXPECT_TRUE(allclose(bag(indices), tensor({{0.9, 1.2}, {1.2, 1.6}})));
  EXPECT_TRUE(allclose(bag.weight, short_rows));
  weight = table();
  functional::embedding_bag(indices, weight, {.mode = EmbeddingBagMode::kSum, .max_norm = 1});
  EXPECT_TRUE(allclose(weight, short_rows));
}

// 5 * 1.3 is 6.5, so that there are 6 elements. Their centers lie at (i + 0.5) * 5 / 6 - 0.5, or at
// (i + 0.5) / 1.3 - 0.5.
TEST(UpsampleTest, ThePositionsFollowFromTheSizesIfTheFactorIsRecomputed) {
  namespace F = functional;
  const Tensor x = arange(5).to(kFloat64).view({1, 1, 5});
  const auto options =
      F::InterpolateFuncOptions().scale_factor(std::vector<double>{1.3}).mode("linear");
  const Tensor recomputed =
      F::interpolate(x, F::InterpolateFuncOptions(options).recompute_scale_factor(true));
  EXPECT_TRUE(allclose(recomputed.flatten(),
                       tensor({0.0, 0.75, 1.5 + 1 / 12.0, 2.5 - 1 / 12.0, 3.25, 4.0}).to(kFloat64),
                       1e-6, 1e-6));
  const Tensor given = F::interpolate(x, options);
  EXPECT_TRUE(allclose(given.flatten(),
                       tensor({0.0, 1.5 / 1.3 - 0.5, 2.5 / 1.3 - 0.5, 3.5 / 1.3 - 0.5,
                               4.5 / 1.3 - 0.5, 5.5 / 1.3 - 0.5})
                           .to(kFloat64)
                           .clamp(0, 4),
                       1e-6, 1e-6));
}

}  // namespace
}  // namespace mytorch::nn
