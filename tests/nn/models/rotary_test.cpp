// Rotary position embeddings, compared with complex numbers in double and with the frequencies of
// Hugging Face's transformers.
#include "mytorch/nn/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/randn.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::values;

// Rotates x (N, H, L, D) by positions[n][i].
std::vector<double> rotated(const Tensor& x, int64_t dim, bool interleaved, double base,
                            const std::vector<std::vector<int64_t>>& positions) {
  std::vector<double> out = values(x);
  const int64_t heads = x.size(1), length = x.size(2), width = x.size(3);
  for (size_t row = 0; row < out.size() / static_cast<size_t>(width); ++row) {
    const size_t n = row / static_cast<size_t>(heads * length),
                 i = row % static_cast<size_t>(length);
    for (int64_t pair = 0; pair < dim / 2; ++pair) {
      const size_t first =
          row * static_cast<size_t>(width) + static_cast<size_t>(interleaved ? 2 * pair : pair);
      const size_t second = first + static_cast<size_t>(interleaved ? 1 : dim / 2);
      const double angle =
          static_cast<double>(positions[n][i]) *
          std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(dim));
      const auto turned = std::complex(out[first], out[second]) * std::polar(1.0, angle);
      out[first] = turned.real();
      out[second] = turned.imag();
    }
  }
  return out;
}

TEST(RotaryEmbedding, RotatesPairsByTheirPosition) {
  const Tensor x = randn({2, 3, 4, 10});
  for (const bool interleaved : {false, true}) {
    for (const int64_t dim : {10, 6, 2}) {
      RotaryEmbedding rope(dim, {.base = 100, .interleaved = interleaved});
      const std::vector<int64_t> from_zero{0, 1, 2, 3}, later{70000, 70001, 70002, 70003};
      expect_values(rope(x), rotated(x, dim, interleaved, 100, {from_zero, from_zero}));
      expect_values(rope(x, 70000), rotated(x, dim, interleaved, 100, {later, later}), 1e-5);
      const std::vector<int64_t> any{5, 5, 0, 900};
      expect_values(rope(x, tensor(any)), rotated(x, dim, interleaved, 100, {any, any}));
      expect_values(rope(x, tensor({{5, 5, 0, 900}, {1, 2, 3, 4}}).to(kInt32)),
                    rotated(x, dim, interleaved, 100, {any, {1, 2, 3, 4}}));
    }
  }
}

TEST(RotaryEmbedding, KeepsTypesAndComputesInFloat32) {
  RotaryEmbedding rope(16);
  const Tensor x = randn({1, 2, 5, 16});
  for (const ScalarType dtype : {kBFloat16, kFloat16, kFloat64}) {
    const Tensor y = rope(x.to(dtype), 1000);
    EXPECT_EQ(y.dtype(), dtype);
    expect_values(y, values(rope(x.to(dtype).to(kFloat64), 1000).to(dtype)),
                  dtype == kFloat64 ? 0 : 1e-2);
  }
}

TEST(RotaryEmbedding, ProductsDependOnTheDistance) {
  RotaryEmbedding rope(8);
  const Tensor q = randn({1, 1, 1, 8}, kFloat64), k = randn({1, 1, 1, 8}, kFloat64);
  expect_values(matmul(rope(q, 107), rope(k, 100).mT()), values(matmul(rope(q, 7), rope(k).mT())));
}

TEST(RotaryEmbedding, ContinuesACache) {
  const NoGradGuard no_grad;
  RotaryEmbedding rope(4);
  const Tensor x = randn({2, 1, 3, 4});
  expect_values(rope(x, static_cast<const KVCache*>(nullptr)), values(rope(x)));
  KVCache cache(1, 2, 16);
  expect_values(rope(x, &cache), values(rope(x)));
  cache.append(0, x, x);
  expect_values(rope(x, &cache), values(rope(x, 3)));
  cache.truncate({1, 3});
  expect_values(rope(x, &cache), values(rope(x, tensor({{1, 2, 3}, {3, 4, 5}}))));
  expect_error(ErrorCode::kShape, {"2 sequences"}, [&] { rope(randn({3, 1, 2, 4}), &cache); });
}

TEST(RotaryEmbedding, GradientsRotateBack) {
  for (const bool interleaved : {false, true}) {
    RotaryEmbedding rope(6, {.interleaved = interleaved});
    Tensor x = randn({1, 2, 3, 8}, kFloat64).requires_grad_();
    const Tensor weights = randn({1, 2, 3, 8}, kFloat64);
    // A rotation R is orthogonal: the gradient of (R x) . (R w) is w.
    (rope(x, 5) * rope(weights, 5)).sum().backward();
    expect_values(x.grad(), values(weights));
  }
}

TEST(RotaryEmbedding, TablesOfInferenceModeServeTraining) {
  RotaryEmbedding rope(4);
  {
    const InferenceMode inference;
    rope(randn({1, 1, 2, 4}));
  }
  Tensor x = randn({1, 1, 2, 4}).requires_grad_();
  rope(x).sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(RotaryEmbedding, ScalingFollowsItsFormulas) {
  const auto frequencies = [](RotaryScaling scaling) {
    return RotaryEmbedding(8, {.base = 10000, .scaling = scaling}).frequencies();
  };
  const auto near = [](const std::vector<double>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i] / expected[i], 1, 1e-12);
  };
  near(frequencies({}), {1, 0.1, 0.01, 0.001});
  near(frequencies({.type = "linear", .factor = 4}), {0.25, 0.025, 0.0025, 0.00025});
  // base * 8^(8 / 6) = 160000.
  near(frequencies({.type = "ntk", .factor = 8}), {1, 1. / 20, 1. / 400, 1. / 8000});
  // Wavelengths 6.3, 63, 628 and 6283: below 2048 / 4 kept, beyond 2048 / 1 divided.
  const double turns = 2048 * 0.01 / (2 * M_PI), kept = (turns - 1) / 3;
  near(frequencies({.type = "llama3", .factor = 8, .original_max_position_embeddings = 2048}),
       {1, 0.1, 0.01 * kept + 0.01 / 8 * (1 - kept), 0.001 / 8});
}

// As _compute_yarn_parameters of transformers: 8 log(64 / (2 pi turns)) / (2 log(100)) is 0.2 for 8
// turns and 2.6 for half of one, so pairs 0 to 3 are slowed down more and more.
TEST(RotaryEmbedding, YarnKeepsFastPairsAndScalesSizes) {
  const RotaryScaling yarn{.type = "yarn",
                           .factor = 4,
                           .original_max_position_embeddings = 64,
                           .beta_fast = 8,
                           .beta_slow = 0.5};
  RotaryEmbedding rope(8, {.base = 100, .scaling = yarn});
  const std::vector<double> slowed{1, 0.23717082451262847, 0.05, 0.007905694150420948};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(rope.frequencies()[i] / slowed[i], 1, 1e-12);
  const Tensor x = randn({1, 1, 1, 8}, kFloat64);
  expect_values(rope(x, 0), values(mul(x, 1.138629436111989)));  // 1 + log(4) / 10
  RotaryScaling given = yarn;
  given.attention_factor = 2;
  RotaryEmbedding twice(8, {.base = 100, .scaling = given});
  expect_values(twice(x, 0), values(mul(x, 2.0)));
  EXPECT_NE(rope.describe().find("yarn 4"), std::string::npos);
}

TEST(RotaryEmbedding, MistakesSayHowToMendThem) {
  expect_error(ErrorCode::kValue, {"dim is 5", "even"}, [] { RotaryEmbedding(5); });
  expect_error(ErrorCode::kValue, {"base is 0"}, [] { RotaryEmbedding(4, {.base = 0}); });
  expect_error(ErrorCode::kValue, {"factor is nan"}, [] {
    RotaryEmbedding(4, {.scaling = {.factor = std::numeric_limits<double>::quiet_NaN()}});
  });
  expect_error(ErrorCode::kValue, {"llama3", "low_freq_factor"},
               [] { RotaryEmbedding(4, {.scaling = {.type = "llama3", .low_freq_factor = 4}}); });
  expect_error(ErrorCode::kValue, {"yarn", "beta_fast 0.5"},
               [] { RotaryEmbedding(4, {.scaling = {.type = "yarn", .beta_fast = 0.5}}); });
  expect_error(ErrorCode::kValue, {"attention_factor is 0"},
               [] { RotaryEmbedding(4, {.scaling = {.type = "yarn", .attention_factor = 0}}); });
  expect_error(ErrorCode::kValue, {"su", "yarn"}, [] { (void)RotaryScaling{.type = "su"}; });
  RotaryEmbedding rope(4);
  expect_error(ErrorCode::kShape, {"(3, 2)", "at least 4 features"}, [&] { rope(randn({3, 2})); });
  expect_error(ErrorCode::kType, {"int64"}, [&] { rope(tensor({{1, 2, 3, 4}})); });
  const Tensor x = randn({2, 3, 4});
  expect_error(ErrorCode::kShape, {"(4,)", "(3) or (2, 3)"}, [&] {
    rope(x, tensor({1, 2, 3, 4}));
  });
  expect_error(ErrorCode::kType, {"float32"}, [&] { rope(x, tensor({1.0, 2.0, 3.0})); });
  expect_error(ErrorCode::kValue, {"position is -1"}, [&] { rope(x, tensor({1, -1, 3})); });
  expect_error(ErrorCode::kValue, {"offset is -2"}, [&] { rope(x, -2); });
  expect_error(ErrorCode::kOutOfMemory, {"2^28"}, [&] { rope(x, int64_t{1} << 40); });
}

}  // namespace
}  // namespace mytorch::nn
