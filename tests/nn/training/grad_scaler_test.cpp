#include "mytorch/nn/training/grad_scaler.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "mytorch/autocast.h"
#include "mytorch/nn.h"
#include "mytorch/ops.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using optim::SGD;

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor parameter(const std::vector<double>& values) {
  return filled({static_cast<int64_t>(values.size())}, values).requires_grad_();
}
// Gives the parameter this gradient, scaled.
void backward(const GradScaler& scaler, const Tensor& p, double gradient) {
  scaler.scale((p * gradient).sum()).backward();
}

TEST(GradScaler, StepsAsWithoutScaling) {
  const Tensor p = parameter({1, 2});
  SGD sgd({p}, {.lr = 0.5});
  GradScaler scaler({.init_scale = 1024});
  backward(scaler, p, 3);
  expect_values(p.grad(), {3072, 3072});
  EXPECT_TRUE(scaler.step(sgd));
  scaler.update();
  expect_values(p, {-0.5, 0.5});
  EXPECT_EQ(scaler.get_scale(), 1024);
}

TEST(GradScaler, SkipsStepsThatAreNotFinite) {
  for (const double bad : {kInf, -kInf, std::numeric_limits<double>::quiet_NaN()}) {
    const Tensor p = parameter({1, 2});
    const Tensor q = parameter({1});
    SGD sgd({p, q}, {.lr = 0.5});
    GradScaler scaler({.init_scale = 8});
    backward(scaler, p, 1);
    backward(scaler, q, bad);
    EXPECT_FALSE(scaler.step(sgd));
    scaler.update();
    expect_values(p, {1, 2});
    EXPECT_EQ(scaler.get_scale(), 4);
  }
}

TEST(GradScaler, GrowsAfterFiniteStepsInARow) {
  const Tensor p = parameter({1});
  SGD sgd({p}, {.lr = 0});
  GradScaler scaler({.init_scale = 8, .growth_factor = 4, .growth_interval = 2});
  const auto run = [&](double gradient) {
    sgd.zero_grad();
    backward(scaler, p, gradient);
    scaler.step(sgd);
    scaler.update();
    return scaler.get_scale();
  };
  EXPECT_EQ(run(1), 8);
  EXPECT_EQ(run(kInf), 4);
  EXPECT_EQ(run(1), 4);
  EXPECT_EQ(run(1), 16);
  EXPECT_EQ(run(1), 16);
}

TEST(GradScaler, UnscalesBeforeClipping) {
  const Tensor p = parameter({0, 0});
  SGD sgd({p}, {.lr = 1});
  GradScaler scaler({.init_scale = 64});
  scaler.scale((p * filled({2}, {3, 4})).sum()).backward();
  scaler.unscale_(sgd);
  expect_values(p.grad(), {3, 4});
  EXPECT_NEAR(optim::clip_grad_norm_({p}, 1.0).item<double>(), 5, 1e-6);
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_NEAR(p.select(0, 0).item<double>(), -0.6, 1e-5);
}

TEST(GradScaler, OneOptimizerMaySkipWhileAnotherSteps) {
  const Tensor p = parameter({1}), q = parameter({1});
  SGD first({p}, {.lr = 1}), second({q}, {.lr = 1});
  GradScaler scaler({.init_scale = 8});
  backward(scaler, p, 1);
  backward(scaler, q, kInf);
  EXPECT_TRUE(scaler.step(first));
  EXPECT_FALSE(scaler.step(second));
  scaler.update();
  expect_values(p, {0});
  expect_values(q, {1});
  EXPECT_EQ(scaler.get_scale(), 4);
}

TEST(GradScaler, ADisabledOneChangesNothing) {
  const Tensor p = parameter({1});
  SGD sgd({p}, {.lr = 1});
  GradScaler scaler({.enabled = false});
  const Tensor loss = p.sum();
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  loss.backward();
  scaler.unscale_(sgd);
  EXPECT_TRUE(scaler.step(sgd));
  scaler.update();
  expect_values(p, {0});
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_TRUE(scaler.state_dict().empty());
}

TEST(GradScaler, ItsStateContinues) {
  const Tensor p = parameter({1});
  SGD sgd({p}, {.lr = 0});
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  backward(scaler, p, 1);
  scaler.step(sgd);
  scaler.update();
  GradScaler other;
  other.load_state_dict(scaler.state_dict());
  EXPECT_EQ(other.get_scale(), 8);
  backward(other, p, 1);
  other.step(sgd);
  other.update();
  EXPECT_EQ(other.get_scale(), 16);
  expect_error(ErrorCode::kValue, {"[GradScaler]", "'growth_factor'"}, [&] {
    other.load_state_dict({{"scale", filled({}, {1})}});
  });
}

TEST(GradScaler, RefusesCallsOutOfOrder) {
  const Tensor p = parameter({1}), half = p.detach().to(kFloat16).requires_grad_();
  SGD sgd({p}, {.lr = 1}), halves({half}, {.lr = 1});
  GradScaler scaler;
  expect_error(ErrorCode::kValue, {"[GradScaler]", "call step() first"}, [&] { scaler.update(); });
  backward(scaler, p, 1);
  scaler.unscale_(sgd);
  expect_error(ErrorCode::kValue, {"[GradScaler]", "already unscaled"},
               [&] { scaler.unscale_(sgd); });
  scaler.step(sgd);
  expect_error(ErrorCode::kValue, {"[GradScaler]", "called twice"}, [&] { scaler.step(sgd); });
  scaler.update();
  half.sum().backward();
  expect_error(ErrorCode::kType, {"[GradScaler]", "float16", "AutocastGuard"},
               [&] { scaler.step(halves); });
  expect_error(ErrorCode::kValue, {"backoff_factor is 2"},
               [] { GradScaler({.backoff_factor = 2}); });
  expect_error(ErrorCode::kValue, {"the scale is 0"}, [] { GradScaler({.init_scale = 0}); });
}

// ---- training ----

// Trains a small network under autocast. Returns the loss at the end.
double train(ScalarType dtype, bool scaled) {
  manual_seed(0);
  Sequential net(Linear(8, 32), LayerNorm(32), GELU(), Linear(32, 1));
  optim::AdamW adam(net.parameters(), {.lr = 0.01});
  GradScaler scaler({.enabled = scaled});
  const Tensor x = randn({64, 8}), y = x.sum(1, true);
  double last = 0;
  for (int step = 0; step < 150; ++step) {
    Tensor loss;
    {
      const AutocastGuard autocast({.device = kCPU, .dtype = dtype});
      const Tensor out = net(x);
      EXPECT_EQ(out.dtype(), dtype);
      loss = mse_loss(out, y);
      EXPECT_EQ(loss.dtype(), kFloat32);
    }
    adam.zero_grad();
    scaler.scale(loss).backward();
    scaler.step(adam);
    scaler.update();
    last = loss.item<float>();
  }
  for (const Tensor& p : net.parameters()) {
    EXPECT_EQ(p.dtype(), kFloat32);
    EXPECT_EQ(p.grad().dtype(), kFloat32);
  }
  return last;
}

TEST(MixedPrecision, TrainsInBfloat16) { EXPECT_LT(train(kBFloat16, false), 0.2); }
TEST(MixedPrecision, TrainsInFloat16WithAScaler) { EXPECT_LT(train(kFloat16, true), 0.2); }

TEST(MixedPrecision, BatchNormKeepsTheTypeOfTheConvolution) {
  Sequential net(Conv2d(3, 4, 3), BatchNorm2d(4), ReLU());
  const AutocastGuard autocast({.device = kCPU, .dtype = kBFloat16});
  const Tensor out = net(randn({2, 3, 6, 6}));
  EXPECT_EQ(out.dtype(), kBFloat16);
  out.sum().backward();
  for (const Tensor& p : net.parameters()) EXPECT_EQ(p.grad().dtype(), kFloat32);
}

}  // namespace
}  // namespace mytorch::nn
