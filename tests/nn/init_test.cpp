#include "mytorch/nn/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mytorch/nn/linear.h"
#include "mytorch/nn/transformer.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/mm.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn::init {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::values;

struct Moments {
  double mean, variance, largest;
};

Moments moments(const Tensor& tensor) {
  const std::vector<double> all = values(tensor);
  Moments m{0, 0, 0};
  for (double x : all) m.mean += x / static_cast<double>(all.size());
  for (double x : all) {
    m.variance += (x - m.mean) * (x - m.mean) / static_cast<double>(all.size());
    m.largest = std::max(m.largest, std::abs(x));
  }
  return m;
}

// 64 outputs of 32 channels through windows of 5 x 3: fans 480 and 960.
class InitTest : public ::testing::Test {
 protected:
  void expect_uniform(double deviation) {
    const Moments m = moments(weight_);
    expect_moments(m, deviation);
    EXPECT_LE(m.largest, std::sqrt(3.0) * deviation * (1 + 1e-6));
  }
  void expect_normal(double deviation) {
    const Moments m = moments(weight_);
    expect_moments(m, deviation);
    EXPECT_GT(m.largest, 3 * deviation);  // excludes every bounded distribution with that deviation
  }

  Tensor weight_ = empty({64, 32, 5, 3}).requires_grad_();
  Generator generator_{5};

 private:
  void expect_moments(const Moments& m, double deviation) {
    const double n = static_cast<double>(weight_.numel());
    EXPECT_NEAR(m.mean, 0, 6 * deviation / std::sqrt(n));
    EXPECT_NEAR(m.variance, deviation * deviation, 10 * deviation * deviation / std::sqrt(n));
  }
};

TEST_F(InitTest, StandardDeviationsMatchThePapers) {
  EXPECT_EQ(fans(weight_).in, 480);
  EXPECT_EQ(fans(weight_).out, 960);
  expect_uniform((xavier_uniform_(weight_, 2, generator_), 2 * std::sqrt(2.0 / 1440)));
  expect_normal((xavier_normal_(weight_, 1, generator_), std::sqrt(2.0 / 1440)));
  expect_uniform((kaiming_uniform_(weight_, {}, generator_), std::sqrt(2.0 / 480)));
  expect_normal(
      (kaiming_normal_(weight_, {.mode = FanMode::kOut, .nonlinearity = Nonlinearity::kTanh},
                       generator_),
       5.0 / 3 / std::sqrt(960.0)));
  expect_uniform((kaiming_uniform_(weight_, {.negative_slope = std::sqrt(5.0)}, generator_),
                  std::sqrt(1.0 / 3 / 480)));
  EXPECT_TRUE(weight_.requires_grad());
  EXPECT_TRUE(weight_.is_leaf());
}

TEST_F(InitTest, SameGeneratorSameValues) {
  normal_(weight_, 0, 1, Generator(9));
  const std::vector<double> first = values(weight_);
  normal_(weight_, 0, 1, Generator(9));
  EXPECT_EQ(values(weight_), first);
  normal_(weight_, 0, 1, Generator(10));
  EXPECT_NE(values(weight_), first);
}

TEST_F(InitTest, ConstantsAndGains) {
  for (double value : values(constant_(weight_, 2.5))) ASSERT_EQ(value, 2.5);
  for (double value : values(ones_(weight_))) ASSERT_EQ(value, 1);
  for (double value : values(zeros_(weight_))) ASSERT_EQ(value, 0);
  EXPECT_EQ(gain(Nonlinearity::kLinear), 1);
  EXPECT_EQ(gain(Nonlinearity::kReLU), std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(gain(Nonlinearity::kLeakyReLU, 0.5), std::sqrt(2 / 1.25));
}

TEST_F(InitTest, TruncatedNormalStaysWithinItsBounds) {
  trunc_normal_(weight_, 1, 2, -1, 1.5, generator_);
  double mean = 0;
  for (double x : values(weight_)) {
    ASSERT_TRUE(x >= -1 && x <= 1.5) << x;
    mean += x / static_cast<double>(weight_.numel());
  }
  // The mean of the distribution: mean + std * (density(a) - density(b)) / (cdf(b) - cdf(a)).
  const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); };
  const auto cdf = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  const double expected = 1 + 2 * (density(-1) - density(0.25)) / (cdf(0.25) - cdf(-1));
  EXPECT_NEAR(mean, expected, 6 * 0.72 / std::sqrt(30720.0));
  trunc_normal_(weight_, 0, 1, 30, 31, generator_);  // far in the tail
  for (double x : values(weight_)) ASSERT_TRUE(x >= 30 && x <= 31) << x;
  expect_error(ErrorCode::kValue, {"[trunc_normal_]", "std"},
               [&] { trunc_normal_(weight_, 0, 0); });
}

TEST_F(InitTest, OrthogonalRowsOrColumns) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{70, 150}, {150, 70}, {3, 2, 2, 2}, {1, 1}}) {
    const Tensor w = empty(shape, kFloat64);
    orthogonal_(w, 3, generator_);
    const Tensor matrix = w.flatten(1);
    const Tensor rows = matrix.size(0) <= matrix.size(1) ? matrix : matrix.t();
    const std::vector<double> products = values(mm(rows, rows.t()));
    const size_t n = static_cast<size_t>(rows.size(0));
    for (size_t i = 0; i < n * n; ++i) ASSERT_NEAR(products[i], i % (n + 1) == 0 ? 9 : 0, 1e-9);
  }
  expect_error(ErrorCode::kShape, {"[orthogonal_]", "(3,)"}, [] { orthogonal_(empty({3})); });
}

TEST_F(InitTest, IdentitiesAndSparseMatrices) {
  const Tensor matrix = empty({2, 3}).requires_grad_();
  EXPECT_EQ(values(eye_(matrix)), (std::vector<double>{1, 0, 0, 0, 1, 0}));
  const Tensor kernel = empty({4, 2, 3});
  EXPECT_EQ(values(dirac_(kernel, 2)), (std::vector<double>{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
                                                            0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}));
  const Tensor sparse = empty({10, 7});
  sparse_(sparse, 0.25, 1, generator_);
  for (int64_t c = 0; c < 7; ++c) {
    int zeros = 0;
    for (double x : values(sparse.select(1, c))) zeros += x == 0;
    EXPECT_EQ(zeros, 3);
  }
  expect_error(ErrorCode::kShape, {"[eye_]", "(3,)"}, [] { eye_(empty({3})); });
  expect_error(ErrorCode::kValue, {"[dirac_]", "3 groups"}, [&] { dirac_(kernel, 3); });
  expect_error(ErrorCode::kValue, {"[sparse_]", "1.5"}, [&] { sparse_(sparse, 1.5); });
  EXPECT_EQ(calculate_gain("tanh"), 5.0 / 3);
  kaiming_normal_(matrix, {.mode = "fan_out", .nonlinearity = "relu"});
  expect_error(ErrorCode::kValue, {"'relu6'", "leaky_relu"}, [] { calculate_gain("relu6"); });
}

TEST_F(InitTest, FewDimensionsAndNoElements) {
  expect_error(ErrorCode::kShape, {"[init]", "(3,)"}, [] { xavier_normal_(empty({3})); });
  EXPECT_EQ(kaiming_uniform_(empty({3, 0})).numel(), 0);
}

TEST(TransformerInit, DrawsMatricesZerosBiasesAndScalesResiduals) {
  Transformer model(64, 4,
                    {.num_encoder_layers = 2, .num_decoder_layers = 2, .dim_feedforward = 128});
  for (const Tensor& parameter : model.parameters()) constant_(parameter, 7);
  transformer_(model, {.residual = {"out_proj.weight", "linear2.weight"},
                       .num_layers = 8,
                       .generator = Generator(3)});
  for (const auto& [name, parameter] : model.named_parameters()) {
    SCOPED_TRACE(name);
    const Moments m = moments(parameter);
    if (name.find("norm") != std::string::npos) {
      EXPECT_EQ(m.mean, 7);
    } else if (name.ends_with("bias")) {
      EXPECT_EQ(m.largest, 0);
    } else {
      const bool residual = name.ends_with("out_proj.weight") || name.ends_with("linear2.weight");
      EXPECT_NEAR(std::sqrt(m.variance), residual ? 0.005 : 0.02, residual ? 0.0005 : 0.002);
      EXPECT_NEAR(m.mean, 0, 0.002);
    }
  }
}

TEST(TransformerInit, KeepsPaddingRowsZeroAndNamesTextsThatMatchNothing) {
  Embedding embedding(5, 3, {.padding_idx = 2});
  transformer_(embedding, {.std = 1});
  const std::vector<double> found = values(embedding.weight);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i] == 0, i / 3 == 2);
  expect_error(ErrorCode::kValue, {"[transformer_]", "c_proj.weight", "named_parameters"},
               [&] { transformer_(embedding, {.residual = {"c_proj.weight"}, .num_layers = 2}); });
  expect_error(ErrorCode::kValue, {"num_layers is 0"},
               [&] { transformer_(embedding, {.residual = {"weight"}}); });
  expect_error(ErrorCode::kValue, {"std is -1"}, [&] { transformer_(embedding, {.std = -1}); });
}

}  // namespace
}  // namespace mytorch::nn::init
