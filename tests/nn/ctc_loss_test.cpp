// ctc_loss, compared with PyTorch 2.15.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mytorch/nn/functional.h"
#include "mytorch/nn/loss.h"
#include "mytorch/ops/log_softmax.h"
#include "mytorch/ops/sum.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/golden.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

namespace F = functional;
using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using mytorch::testing::kInfinity;

Tensor integers(const std::vector<int64_t>& numbers) { return tensor(numbers, kInt64); }

// Sequences of 8, 6 and 5 steps, with a repeated label and an empty target.
struct Batch {
  Tensor x = wave({8, 3, 5}, 1).requires_grad_();
  Tensor targets = integers({1, 1, 2, 3, 4, 2, 0, 0, 0, 0, 0, 0}).view({3, 4});
  std::vector<int64_t> inputs = {8, 6, 5}, lengths = {4, 2, 0};
};

TEST(CTCLoss, EqualsPyTorchs) {
  const Batch b;
  const Tensor log_probs = log_softmax(b.x, 2);
  const std::vector<double> expected = {8.58973932937, 5.35765687534, 8.69087556585};
  expect_values(F::ctc_loss(log_probs, b.targets, b.inputs, b.lengths, {.reduction = "none"}),
                expected);
  expect_values(F::ctc_loss(log_probs, b.targets, integers(b.inputs), integers(b.lengths)),
                {4.50571294529});
  CTCLoss sum({.reduction = "sum"});
  expect_values(sum(log_probs, b.targets, integers(b.inputs), integers(b.lengths)),
                {22.6382717706});
  expect_values(F::ctc_loss(log_probs, integers({1, 1, 2, 3, 4, 2}), integers(b.inputs),
                            integers(b.lengths), F::CTCLossFuncOptions().reduction("none")),
                expected);
  const Tensor low = log_probs.detach().to(kBFloat16);
  EXPECT_EQ(F::ctc_loss(low, b.targets, b.inputs, b.lengths).dtype(), kBFloat16);
}

TEST(CTCLoss, HasPyTorchsGradientThroughLogSoftmax) {
  const Batch b;
  F::ctc_loss(log_softmax(b.x, 2), b.targets, b.inputs, b.lengths).backward();
  expect_values(sum(b.x.grad() * wave({8, 3, 5}, 2), {0, 2}),
                {0.0347426823455, -0.0146636922728, -0.0988979628724});
}

TEST(CTCLoss, OfATargetThatDoesNotFitIsInfiniteOrZero) {
  const Batch b;
  const Tensor log_probs = log_softmax(b.x, 2), targets = integers({0, 0, 1, 2});
  const std::vector<int64_t> inputs = {3, 4, 8}, lengths = {3, 1, 0};
  expect_values(F::ctc_loss(log_probs, targets, inputs, lengths, {.blank = 4, .reduction = "none"}),
                {kInfinity, 3.55072601144, 15.0082425746});
  const Tensor loss = F::ctc_loss(log_probs, targets, inputs, lengths,
                                  {.blank = 4, .reduction = "sum", .zero_infinity = true});
  expect_values(loss, {3.55072601144 + 15.0082425746});
  loss.backward();
  expect_values(sum(b.x.grad() * wave({8, 3, 5}, 2), {0, 2}), {0, 0.154354900982, 2.20122245836});
}

TEST(CTCLoss, TakesOneSequence) {
  const Tensor x = wave({8, 3, 5}, 1).select(1, 0);
  const Tensor loss = F::ctc_loss(log_softmax(x, 1), integers({1, 2}), integers({8}), integers({2}),
                                  {.reduction = "none"});
  EXPECT_EQ(loss.dim(), 0);
  expect_values(loss, {8.76802517443222});
}

TEST(CTCLoss, OfNoStepsIsZeroForAnEmptyTargetOnly) {
  const Tensor log_probs = log_softmax(wave({4, 2, 3}, 1), 2);
  expect_values(F::ctc_loss(log_probs, integers({1}), {0, 0}, {0, 1}, {.reduction = "none"}),
                {0, kInfinity});
}

TEST(CTCLoss, StaysFiniteForImpossibleClasses) {
  const Tensor log_probs = filled({3, 1, 2}, {-kInfinity, 0, 0, -kInfinity, -kInfinity, 0});
  const Tensor x = log_probs.requires_grad_();
  const Tensor loss = F::ctc_loss(x, integers({1, 1}), {3}, {2}, {.reduction = "sum"});
  expect_values(loss, {0});
  loss.backward();
  expect_values(x.grad(), {0, -1, -1, 0, 0, -1});
}

TEST(CTCLoss, ErrorsSayWhatToGive) {
  const Tensor p = log_softmax(wave({4, 2, 3}, 1), 2), t = integers({1, 2});
  using Lengths = std::vector<int64_t>;
  const Lengths inputs = {4, 4}, lengths = {1, 1};
  expect_error(ErrorCode::kValue, {"[ctc_loss]", "blank is 3", "0 to 2"},
               [&] { F::ctc_loss(p, t, inputs, lengths, {.blank = 3}); });
  expect_error(ErrorCode::kValue, {"input_lengths has 5", "0 to 4"}, [&] {
    F::ctc_loss(p, t, Lengths{4, 5}, lengths);
  });
  expect_error(ErrorCode::kShape, {"input_lengths", "each of the 2"},
               [&] { F::ctc_loss(p, t, Lengths{4}, lengths); });
  expect_error(ErrorCode::kShape, {"2 labels", "add up to 1"}, [&] {
    F::ctc_loss(p, t, inputs, Lengths{1, 0});
  });
  expect_error(ErrorCode::kValue, {"label 3", "0 to 2"}, [&] {
    F::ctc_loss(p, integers({1, 3}), inputs, lengths);
  });
  expect_error(ErrorCode::kType, {"targets is float32", "integers"},
               [&] { F::ctc_loss(p, t.to(kFloat32), inputs, lengths); });
  expect_error(ErrorCode::kShape, {"log_probs", "(T, N, C)"},
               [&] { F::ctc_loss(p[0][0], t, inputs, lengths); });
}

}  // namespace
}  // namespace mytorch::nn
