// Averages of models, and options that change during training.
#include "mytorch/nn/optim/averaging.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/nn/container.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/optim/adam.h"
#include "mytorch/nn/optim/sgd.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/sum.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn::optim {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using mytorch::testing::values;

void fill(const Module& model, double value) {
  NoGradGuard no_grad;
  for (const Tensor& parameter : model.parameters()) parameter.fill_(value);
}

TEST(AveragedModel, AveragesEquallyOrExponentially) {
  Linear model(2, 1);
  AveragedModel swa(model);
  AveragedModel ema(model, {.decay = 0.75});
  for (double value : {1, 3, 8}) {
    fill(model, value);
    swa.update_parameters(model);
    ema.update_parameters(model);
  }
  expect_values(swa.module().weight, {4, 4});
  expect_values(ema.module().bias, {0.75 * (0.75 * 1 + 0.25 * 3) + 0.25 * 8});
  expect_values(model.weight, {8, 8});
  expect_values(swa(ones({1, 2})), {12});
  EXPECT_EQ(ema.num_averaged(), 3);
  EXPECT_FALSE(swa.module().weight.requires_grad());
  EXPECT_TRUE(model.weight.requires_grad());
  expect_error(ErrorCode::kValue, {"[AveragedModel]", "2"},
               [&] { AveragedModel<Linear>(model, {.decay = 2}); });
}

TEST(AveragedModel, CopiesBuffersAndRecomputesStatistics) {
  Sequential model(BatchNorm1d(1, {.momentum = 0.5}));
  AveragedModel swa(model);
  const Tensor x = filled({4, 1}, {1, 2, 3, 6});
  model(x);
  swa.update_parameters(model);
  expect_values(swa.module().at<BatchNorm1d>(0).running_mean, {1.5});
  swa.module().eval();
  update_bn(swa.module(), [&] {
    swa(x);
    swa(x + 2);
  });
  const BatchNorm1d& norm = swa.module().at<BatchNorm1d>(0);
  expect_values(norm.running_mean, {4});
  EXPECT_EQ(norm.momentum(), 0.5);
  EXPECT_FALSE(norm.training());
}

TEST(Options, ChangeBetweenSteps) {
  const Tensor p = ones({1}).requires_grad_(), q = ones({1}).requires_grad_();
  SGD sgd({p}, {.lr = 1});
  sgd.add_param_group({q});
  const auto step = [&] {
    return sgd.step([&] {
      sgd.zero_grad();
      const Tensor loss = (p + q).sum();
      loss.backward();
      return loss;
    });
  };
  expect_values(step(), {2});
  expect_values(p, {0});
  sgd.options(0).lr = 0.5;
  sgd.options(1).maximize = true;
  step();
  expect_values(p, {-0.5});
  expect_values(q, {1});
  sgd.set_option(1, "weight_decay", 0.25);
  EXPECT_EQ(sgd.option(1, "weight_decay"), 0.25);
  expect_error(ErrorCode::kValue, {"[SGD]", "weight_decay", "-1"},
               [&] { sgd.set_option(1, "weight_decay", -1); });
  EXPECT_EQ(sgd.options(1).weight_decay, 0.25);
  expect_error(ErrorCode::kValue, {"[SGD]", "'beta1'", "momentum"},
               [&] { sgd.set_option(0, "beta1", 0); });
  sgd.options(0).momentum = -1;
  expect_error(ErrorCode::kValue, {"[SGD]", "momentum", "-1"}, [&] { sgd.step(); });
  expect_error(ErrorCode::kValue, {"[SGD]", "group 2"}, [&] { sgd.options(2); });
  expect_values(p, {-0.5});
  sgd.zero_grad(/*set_to_none=*/false);
  expect_values(p.grad(), {0});
}

TEST(Options, ArePrinted) {
  Adam adam({ones({1}).requires_grad_()}, {.lr = 0.5, .amsgrad = true});
  std::ostringstream out;
  out << adam;
  EXPECT_EQ(
      out.str(),
      "Adam (\nParameter Group 0 (1 tensors)\n    beta1: 0.9\n    beta2: 0.999\n    eps: 1e-08\n"
      "    lr: 0.5\n    weight_decay: 0\n    amsgrad: true\n    master_weights: true\n"
      "    maximize: false\n    state_dtype: none\n)");
}

}  // namespace
}  // namespace mytorch::nn::optim
