// Modules, compared with computations by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mytorch/autograd.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/activation.h"
#include "mytorch/nn/conv.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/init.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/loss.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/pooling.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/gelu.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/square.h"
#include "mytorch/ops/sum.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using mytorch::testing::values;

void set(const Tensor& parameter, const std::vector<double>& numbers) {
  NoGradGuard no_grad;
  parameter.copy_(filled(parameter.sizes(), numbers));
}

TEST(LinearTest, IsAnAffineMapOfTheLastDimension) {
  Linear linear(2, 3);
  set(linear.weight, {1, 2, 3, 4, 5, 6});
  set(linear.bias, {0.5, 0, -1});
  expect_values(linear(filled({2, 1, 2}, {1, 1, 2, -1})), {3.5, 7, 10, 0.5, 2, 3});
  const Tensor x = filled({1, 2}, {2, 3});
  sum(linear(x)).backward();
  expect_values(linear.weight.grad(), {2, 3, 2, 3, 2, 3});
  expect_values(linear.bias.grad(), {1, 1, 1});
  EXPECT_EQ(linear(filled({0, 2}, {})).sizes().vec(), (std::vector<int64_t>{0, 3}));
  EXPECT_FALSE(Linear(2, 3, false).bias.defined());
  expect_error(ErrorCode::kValue, {"[Linear]", "in_features", "-1"}, [] { Linear(-1, 2); });
}

TEST(LinearTest, GeluIsThatOfTheResult) {
  manual_seed(3);
  Linear linear(4, 5);
  const Tensor x = randn({2, 3, 4});
  for (const char* approximate : {"none", "tanh"}) {
    const Tensor expected = mytorch::gelu(linear(x), approximate);
    expect_values(linear.gelu(x, approximate), values(expected), 1e-6);
    // A hook sees the result of the linear layer, and replaces it.
    Tensor seen;
    HookHandle hook =
        linear.register_forward_hook([&](Module&, const Tensor& /*input*/, const Tensor& output) {
          seen = output;
          return mytorch::neg(output);
        });
    const Tensor hooked = linear.gelu(x, approximate);
    ASSERT_TRUE(seen.defined());
    expect_values(hooked, values(mytorch::gelu(mytorch::neg(seen), approximate)), 1e-6);
    hook.remove();
  }
  expect_error(ErrorCode::kShape, {"(in ", "Linear(in_features=4"}, [&] {
    linear.gelu(ones({2, 3}));
  });
}

TEST(LinearTest, JoinedLayersGiveTheirResultsSideBySide) {
  manual_seed(4);
  for (const bool bias : {true, false}) {
    Linear a(3, 4, bias), b(3, 5, bias);
    // Many rows are one product, few are not.
    for (const int64_t rows : {40, 1}) {
      const Tensor x = randn({rows, 3});
      const Tensor expected = cat({a(x), b(x)}, -1);
      expect_values(Linear::joined({&a, &b}, x), values(expected), 1e-6);
      a.zero_grad();
      b.zero_grad();
      sum(square(expected)).backward();
      std::vector<std::vector<double>> gradients;
      for (const Tensor& p : {a.weight, b.weight}) gradients.push_back(values(p.grad()));
      a.zero_grad();
      b.zero_grad();
      sum(square(Linear::joined({&a, &b}, x))).backward();
      expect_values(a.weight.grad(), gradients[0], 1e-5);
      expect_values(b.weight.grad(), gradients[1], 1e-5);
    }
  }
  // Hooks are called, and layers that do not fit together computed one by one.
  Linear a(3, 4), b(3, 5, false);
  int calls = 0;
  a.register_forward_hook([&](Module&, const Tensor&, const Tensor&) { ++calls; });
  const Tensor x = randn({40, 3});
  expect_values(Linear::joined({&a, &b}, x), values(cat({a(x), b(x)}, -1)), 1e-6);
  EXPECT_EQ(calls, 2);
  Linear empty(nullptr);
  expect_error(ErrorCode::kValue, {"empty"}, [&] { Linear::joined({&a, &empty}, x); });
  expect_error(ErrorCode::kValue, {"cat"}, [&] { Linear::joined({}, x); });
}

TEST(LinearTest, InitializesWithinPyTorchsBound) {
  manual_seed(3);
  Linear linear(400, 300);
  const double bound = 1 / std::sqrt(400.0);
  for (const Tensor& parameter : linear.parameters()) {
    double square = 0;
    for (double value : values(parameter)) {
      ASSERT_LE(std::abs(value), bound);
      square += value * value;
    }
    const double n = static_cast<double>(parameter.numel());
    EXPECT_NEAR(square / n, bound * bound / 3, 6 * bound * bound / 3 / std::sqrt(n));
  }
}

TEST(ConvTest, SumsOverWindows) {
  Conv2d conv(1, 1, 2, {.stride = {1, 2}, .padding = {1, 0}});
  set(conv.weight, {1, 2, 3, 4});
  set(conv.bias, {10});
  // With padding, the rows are 0 0 0 0, 1 2 3 4, 0 0 0 0.
  expect_values(conv(filled({1, 1, 1, 4}, {1, 2, 3, 4})), {21, 35, 15, 21});
  Conv1d line(1, 1, 3, {.padding = 1, .bias = false});
  set(line.weight, {1, 0, -1});
  expect_values(line(filled({1, 1, 4}, {1, 2, 4, 8})), {-2, -3, -6, 4});
}

TEST(ConvTest, GroupsMustDivideTheChannels) {
  Conv2d conv(2, 2, 1, {.groups = 2, .bias = false});
  EXPECT_EQ(conv.weight.sizes().vec(), (std::vector<int64_t>{2, 1, 1, 1}));
  set(conv.weight, {2, 3});
  expect_values(conv(filled({1, 2, 1, 1}, {5, 7})), {10, 21});
  expect_error(ErrorCode::kValue, {"[Conv2d]", "groups"}, [] { Conv2d(3, 2, 1, {.groups = 2}); });
  expect_error(ErrorCode::kValue, {"[Conv2d]", "kernel_size"}, [] { Conv2d(1, 1, 0); });
  expect_error(ErrorCode::kValue, {"[Conv2d]", "stride"}, [] { Conv2d(1, 1, 1, {.stride = 0}); });
}

TEST(PoolingTest, ReducesWindows) {
  const Tensor x = filled({1, 1, 2, 4}, {1, 5, 2, 0, 3, 4, 8, 6});
  expect_values(MaxPool2d(2)(x), {5, 8});
  expect_values(MaxPool2d({2, 2}, {.stride = 1})(x), {5, 8, 8});
  expect_values(AvgPool2d(2)(x), {3.25, 4});
  expect_values(AdaptiveAvgPool2d({2, 1})(x), {2, 5.25});
  expect_values(AdaptiveAvgPool2d(1)(x), {29.0 / 8});
}

TEST(BatchNormTest, NormalizesAndTracks) {
  BatchNorm1d norm(2);
  set(norm.weight, {1, 2});
  set(norm.bias, {0, 1});
  const Tensor x = filled({2, 2}, {1, 10, 3, 30});
  const double a = 1 / std::sqrt(1 + 1e-5), b = 10 / std::sqrt(100 + 1e-5);
  expect_values(norm(x), {-a, 1 - 2 * b, a, 1 + 2 * b}, 1e-5);
  expect_values(norm.running_mean, {0.2, 2});
  expect_values(norm.running_var, {0.9 + 0.1 * 2, 0.9 + 0.1 * 200});
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
  norm.eval();
  const double s = std::sqrt(1.1 + 1e-5), t = std::sqrt(20.9 + 1e-5);
  expect_values(norm(x), {0.8 / s, 1 + 2 * 8 / t, 2.8 / s, 1 + 2 * 28 / t}, 1e-5);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
  expect_error(ErrorCode::kShape, {"[BatchNorm1d]", "(2, 3)", "2 channels"}, [&] {
    norm(filled({2, 3}, {1, 2, 3, 4, 5, 6}));
  });
}

TEST(BatchNormTest, WithoutMomentumTracksTheCumulativeAverage) {
  BatchNorm2d norm(1, {.momentum = {}});
  norm(filled({2, 1, 1, 1}, {0, 2}));
  norm(filled({2, 1, 1, 1}, {4, 8}));
  expect_values(norm.running_mean, {3.5});
  expect_values(norm.running_var, {(2.0 + 8.0) / 2});
  BatchNorm2d stateless(1, {.affine = false, .track_running_stats = false});
  EXPECT_TRUE(stateless.state_dict().empty());
  stateless.eval();
  const double a = 1 / std::sqrt(1 + 1e-5);
  expect_values(stateless(filled({2, 1, 1, 1}, {0, 2})), {-a, a}, 1e-5);
}

TEST(LayerNormTest, NormalizesTheLastDimensions) {
  LayerNorm norm(2);
  set(norm.weight, {1, 3});
  set(norm.bias, {0, 1});
  const double a = 1 / std::sqrt(1 + 1e-5), b = 2 / std::sqrt(4 + 1e-5);
  expect_values(norm(filled({2, 2}, {1, 3, 9, 5})), {-a, 1 + 3 * a, b, 1 - 3 * b}, 1e-5);
  EXPECT_EQ(LayerNorm({2, 3}, {.elementwise_affine = false}).num_parameters(), 0);
}

// The results and gradients of norm(x, residual) equal those of norm(x + residual).
template <class Norm>
void expect_residual_norm(Norm norm) {
  manual_seed(1);
  init::uniform_(norm.weight, 0.5, 1.5);
  const Tensor x = randn({3, 5}).requires_grad_(), residual = randn({3, 5}).requires_grad_();
  const Tensor weights = randn({3, 5}), sum_weights = randn({3, 5});
  // Returns y, sum, and the gradients of the operands and the weight.
  const auto run = [&](const Tensor& y, const Tensor& sum) -> std::vector<Tensor> {
    const std::vector<Tensor> grads =
        autograd::grad({(y * weights + sum * sum_weights).sum()}, {x, residual, norm.weight});
    return {y, sum, grads[0], grads[1], grads[2]};
  };
  const Tensor added = x + residual;
  const std::vector<Tensor> unfused = run(norm(added), added);
  const auto [y, sum] = norm(x, residual);
  const std::vector<Tensor> fused = run(y, sum);
  for (size_t i = 0; i < fused.size(); ++i) expect_values(fused[i], values(unfused[i]), 1e-5);

  // Operands that broadcast, or have two types.
  const auto [row_y, row_sum] = norm(x, residual[0]);
  expect_values(row_y, values(norm(x + residual[0])), 1e-5);
  const auto [mixed_y, mixed_sum] = norm(x, residual.to(kBFloat16));
  EXPECT_EQ(mixed_sum.dtype(), kFloat32);
  expect_values(mixed_y, values(norm(x + residual.to(kBFloat16))), 1e-5);

  // Hooks see the sum and the norm, and may replace both.
  int calls = 0;
  norm.register_forward_pre_hook([&](Module&, const Tensor& input) {
    expect_values(input, values(added));
    ++calls;
    return input * 2;
  });
  norm.register_forward_hook([&](Module&, const Tensor&, const Tensor& output) { return -output; });
  const auto [hooked_y, hooked_sum] = norm(x, residual);
  EXPECT_EQ(calls, 1);
  expect_values(hooked_sum, values(added));
  expect_values(hooked_y, values(-norm.forward(added * 2)));
}

TEST(LayerNormTest, AResidualIsAddedFirst) { expect_residual_norm(LayerNorm(5)); }
TEST(RMSNormTest, AResidualIsAddedFirst) { expect_residual_norm(RMSNorm(5)); }

TEST(RMSNormTest, ErrorsOfAResidualNameTheModule) {
  RMSNorm norm(4);
  expect_error(ErrorCode::kShape, {"(2, 3)", "RMSNorm"}, [&] { norm(ones({2, 3}), ones({2, 3})); });
  RMSNorm empty{nullptr};
  expect_error(ErrorCode::kValue, {"assign a layer"}, [&] { empty(ones({2, 3}), ones({2, 3})); });
}

TEST(CrossMapLRN2dTest, DividesByWindowsOfChannels) {
  const int64_t channels = 8;
  std::vector<double> x;
  for (int64_t i = 0; i < channels; ++i) x.push_back(std::sin(static_cast<double>(3 * i + 1)));
  const Tensor input = filled({1, channels, 1, 1}, x, kFloat64);
  for (const int64_t size : {1, 2, 3, 4, 5, 20}) {
    SCOPED_TRACE(size);
    const int64_t reach = (size - 1) / 2;
    std::vector<double> expected;
    for (int64_t i = 0; i < channels; ++i) {
      double sum = 0;
      for (int64_t j = std::max<int64_t>(0, i - reach); j < channels && j <= i + reach; ++j) {
        sum += x[j] * x[j];
      }
      expected.push_back(x[i] / std::pow(2 + 0.5 / static_cast<double>(size) * sum, 0.75));
    }
    expect_values(CrossMapLRN2d(size, {.alpha = 0.5, .k = 2})(input), expected, 1e-12);
  }
  CrossMapLRN2d built(CrossMapLRN2dOptions(3).alpha(0.5).k(2));
  EXPECT_EQ(built.str(), "CrossMapLRN2d(3, alpha=0.5, beta=0.75, k=2)");
  expect_error(ErrorCode::kShape, {"[CrossMapLRN2d]", "(1, 2, 3)"}, [&] {
    built(ones({1, 2, 3}));
  });
  expect_error(ErrorCode::kValue, {"size is 0"}, [] { CrossMapLRN2d(int64_t{0}); });
}

TEST(DropoutTest, ZeroesAndScales) {
  manual_seed(1);
  Dropout dropout(0.25);
  const Tensor y = dropout(ones({40000}));
  int64_t zeros = 0;
  for (double value : values(y)) {
    if (value == 0) {
      ++zeros;
    } else {
      ASSERT_FLOAT_EQ(static_cast<float>(value), 4.0f / 3);
    }
  }
  EXPECT_NEAR(static_cast<double>(zeros), 10000, 6 * std::sqrt(40000 * 0.25 * 0.75));
  expect_error(ErrorCode::kValue, {"[Dropout]", "1.5"}, [] { Dropout(1.5); });
  expect_error(ErrorCode::kValue, {"[Dropout]", "nan"}, [] { Dropout(NAN); });
}

TEST(EmbeddingTest, GathersRows) {
  Embedding embedding(3, 2, {.padding_idx = 1});
  expect_values(embedding.weight.detach().select(0, 1), {0, 0});
  set(embedding.weight, {1, 2, 3, 4, 5, 6});
  const Tensor y = embedding(tensor(std::vector<int64_t>{2, 1, 2}));
  expect_values(y, {5, 6, 3, 4, 5, 6});
  sum(y).backward();
  expect_values(embedding.weight.grad(), {0, 0, 0, 0, 2, 2});
  expect_error(ErrorCode::kValue, {"[Embedding]", "3"},
               [] { Embedding(3, 1, {.padding_idx = 3}); });
  expect_error(ErrorCode::kValue, {"[Embedding]", "-4"},
               [] { Embedding(3, 1, {.padding_idx = -4}); });
}

TEST(EmbeddingTest, ANegativePaddingIndexCountsFromTheLast) {
  Embedding embedding(3, 2, {.padding_idx = -1});
  EXPECT_EQ(embedding.padding_idx(), 2);
  expect_values(embedding.weight.detach().select(0, 2), {0, 0});
  sum(embedding(tensor(std::vector<int64_t>{0, 2}))).backward();
  expect_values(embedding.weight.grad(), {1, 1, 0, 0, 0, 0});
  const Tensor table = ones({3, 2}).requires_grad_();
  functional::embedding(tensor(std::vector<int64_t>{0, 2}), table, {.padding_idx = -1})
      .sum()
      .backward();
  expect_values(table.grad(), {1, 1, 0, 0, 0, 0});
  const Tensor bags =
      functional::embedding_bag(tensor(std::vector<int64_t>{0, 2}).reshape({1, 2}), table.detach(),
                                {.mode = EmbeddingBagMode::kSum, .padding_idx = -1});
  expect_values(bags, {1, 1});
}

TEST(ActivationTest, ComputesItsFunction) {
  const Tensor x = filled({1, 3}, {-2, 0.5, NAN});
  const auto e = [](double v) { return std::exp(v); };
  expect_values(ReLU()(x), {0, 0.5, NAN});
  expect_values(LeakyReLU(0.1)(x), {-0.2, 0.5, NAN});
  expect_values(ELU(2)(x), {2 * (e(-2) - 1), 0.5, NAN});
  expect_values(CELU(2)(x), {2 * (e(-1) - 1), 0.5, NAN});
  expect_values(SiLU()(x), {-2 / (1 + e(2)), 0.5 / (1 + e(-0.5)), NAN});
  expect_values(Sigmoid()(x), {1 / (1 + e(2)), 1 / (1 + e(-0.5)), NAN});
  expect_values(Tanh()(x), {std::tanh(-2.0), std::tanh(0.5), NAN});
  expect_values(Softplus(2)(x), {std::log1p(e(-4)) / 2, std::log1p(e(1)) / 2, NAN});
  expect_values(LogSigmoid()(x), {-std::log1p(e(2)), -std::log1p(e(-0.5)), NAN});
  expect_values(Hardtanh(-1, 0.25)(x), {-1, 0.25, NAN});
  expect_values(GELU()(x),
                {-1 - std::erf(-std::sqrt(2.0)), 0.25 * (1 + std::erf(std::sqrt(0.125))), NAN});
  const double inner = std::sqrt(2 / M_PI) * (0.5 + 0.044715 * 0.125);
  EXPECT_NEAR(values(GELU(Gelu::kTanh)(x))[1], 0.25 * (1 + std::tanh(inner)), 1e-6);
  const Tensor logits = filled({1, 2}, {0, std::log(3.0)});
  expect_values(Softmax(1)(logits), {0.25, 0.75});
  expect_values(LogSoftmax(1)(logits), {std::log(0.25), std::log(0.75)});
  PReLU prelu(2);
  set(prelu.weight, {0.5, 2});
  expect_values(prelu(filled({1, 2, 2}, {-4, 4, -1, 1})), {-2, 4, -2, 1});
  expect_error(ErrorCode::kShape, {"[prelu]", "2 channels"}, [&] { prelu(x); });
}

TEST(LossTest, ReducesItsTerms) {
  const Tensor x = filled({2, 2}, {1, 2, 3, 4}), y = filled({2, 2}, {1, 0, 3, 1});
  expect_values(MSELoss()(x, y), {13.0 / 4});
  expect_values(MSELoss(Reduction::kSum)(x, y), {13});
  expect_values(MSELoss(Reduction::kNone)(x, y), {0, 4, 0, 9});
  expect_values(L1Loss()(x, y), {5.0 / 4});
  expect_values(HuberLoss(2, Reduction::kSum)(x, y), {2 + 2 * (3 - 1)});
  expect_values(SmoothL1Loss(2, Reduction::kSum)(x, y), {1 + (3 - 1)});
  const Tensor logits = filled({1, 2}, {0, std::log(3.0)});
  const Tensor label = tensor(std::vector<int64_t>{1});
  expect_values(CrossEntropyLoss()(logits, label), {-std::log(0.75)});
  expect_values(NLLLoss()(LogSoftmax(1)(logits), label), {-std::log(0.75)});
  CrossEntropyLoss weighted({.weight = filled({2}, {1, 5}), .reduction = Reduction::kSum});
  expect_values(weighted(logits, label), {-5 * std::log(0.75)});
  EXPECT_EQ(weighted.named_buffers().size(), 1u);
  const CrossEntropyLoss copy = weighted;  // finds its own copy of weight
  EXPECT_EQ(copy.named_buffers()[0].first, "weight");
  const Tensor p = filled({2}, {0.25, 0.5}), t = filled({2}, {1, 0});
  expect_values(BCELoss()(p, t), {(std::log(4.0) + std::log(2.0)) / 2});
  expect_values(BCEWithLogitsLoss()(filled({2}, {0, 0}), t), {std::log(2.0)});
  expect_values(
      KLDivLoss(KLReduction::kBatchMean)(filled({1, 2}, {-1, -2}), filled({1, 2}, {0.5, 0.5})),
      {0.5 * (std::log(0.5) + 1) + 0.5 * (std::log(0.5) + 2)});
}

}  // namespace
}  // namespace mytorch::nn
