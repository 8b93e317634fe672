// Mistakes in training loops that would spoil the result in silence.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "mytorch/nn/functional.h"
#include "mytorch/nn/loss.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

namespace F = functional;
using mytorch::testing::expect_error;
using mytorch::testing::expect_values;

TEST(BatchNorm, OfOneValuePerChannelIsRefusedInTraining) {
  BatchNorm1d norm(4);
  expect_error(ErrorCode::kValue, {"[BatchNorm1d]", "(1, 4)", "eval()"}, [&] {
    norm(randn({1, 4}));
  });
  expect_error(ErrorCode::kValue, {"[BatchNorm2d]", "(1, 4, 1, 1)"}, [] {
    BatchNorm2d(4)(randn({1, 4, 1, 1}));
  });
  expect_values(norm.running_var, {1, 1, 1, 1});
  expect_values(norm.num_batches_tracked, {0});
  norm(randn({1, 4, 2}));
  norm.eval();
  norm(randn({1, 4}));
}

TEST(BinaryCrossEntropy, RefusesWhatIsNoProbability) {
  const Tensor target = tensor({0.0, 1});
  for (const Tensor& input : {tensor({0.5, 1.5}), tensor({-0.5, 0.5}), tensor({NAN, 0.5})}) {
    expect_error(ErrorCode::kValue, {"[binary_cross_entropy]", "[0, 1]", "with_logits"},
                 [&] { BCELoss()(input, target); });
  }
  expect_values(BCELoss()(tensor({0.0, 1}), target), {0});
  F::binary_cross_entropy(zeros({0}), zeros({0}), {}, "sum");
}

TEST(Losses, WarnOnceIfTheTargetIsBroadcast) {
  const auto warnings = [](auto loss, const Tensor& input, const Tensor& target) {
    ::testing::internal::CaptureStderr();
    loss(input, target);
    return ::testing::internal::GetCapturedStderr();
  };
  const auto mse = [](const Tensor& x, const Tensor& y) { return F::mse_loss(x, y); };
  const auto huber = [](const Tensor& x, const Tensor& y) { return HuberLoss()(x, y); };
  EXPECT_EQ(warnings(mse, ones({4, 1}), ones({4, 1})), "");
  const std::string text = warnings(mse, ones({4, 1}), ones({4}));
  for (const char* part : {"[mse_loss]", "(4, 1)", "(4,)", "(4, 4)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_EQ(warnings(mse, ones({4, 1}), ones({4})), "");
  EXPECT_NE(warnings(huber, ones({4, 1}), ones({4})), "");
}

}  // namespace
}  // namespace mytorch::nn
