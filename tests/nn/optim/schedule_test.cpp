// Schedules, compared with their closed forms.
#include "mytorch/nn/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "mytorch/nn/optim/adam.h"
#include "mytorch/nn/optim/sgd.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch::nn::optim {
namespace {

using mytorch::testing::expect_error;

// Two groups with rates 0.5 and 2.
class ScheduleTest : public ::testing::Test {
 protected:
  ScheduleTest() { sgd_.add_group({zeros({1}).requires_grad_()}, {.lr = 2, .momentum = 0.5}); }

  // Expects the rates of steps 0, 1, ... to be base * factor(step).
  void expect_factors(LRScheduler& schedule, int steps, const std::function<double(int)>& factor) {
    for (int t = 0; t < steps; ++t) {
      ASSERT_NEAR(sgd_.lr(0), 0.5 * factor(t), 1e-12) << "step " << t;
      ASSERT_NEAR(sgd_.lr(1), 2 * factor(t), 1e-12) << "step " << t;
      ASSERT_EQ(schedule.steps(), t);
      schedule.step();
    }
  }

  SGD sgd_{{zeros({1}).requires_grad_()}, {.lr = 0.5}};
};

TEST_F(ScheduleTest, StepMultipliesAfterEveryPeriod) {
  StepLR schedule(sgd_, 3, 0.5);
  expect_factors(schedule, 8, [](int t) { return t < 3 ? 1 : t < 6 ? 0.5 : 0.25; });
}

TEST_F(ScheduleTest, MultiStepMultipliesAtMilestones) {
  MultiStepLR schedule(sgd_, {5, 2}, 0.1);
  expect_factors(schedule, 7, [](int t) { return t < 2 ? 1 : t < 5 ? 0.1 : 0.01; });
}

TEST_F(ScheduleTest, ExponentialMultipliesAtEveryStep) {
  ExponentialLR schedule(sgd_, 0.9);
  expect_factors(schedule, 5, [](int t) { return std::pow(0.9, t); });
}

TEST_F(ScheduleTest, CosineFallsToTheMinimumAndRises) {
  CosineAnnealingLR schedule(sgd_, 4);
  expect_factors(schedule, 9, [](int t) { return 0.5 + 0.5 * std::cos(std::numbers::pi * t / 4); });
  EXPECT_NEAR(curves::cosine(4, 0.1)(0.5, 4), 0.1, 1e-12);
  EXPECT_NEAR(curves::cosine(4, 0.1)(0.5, 2), 0.3, 1e-12);
}

TEST_F(ScheduleTest, WarmRestartsLengthenTheirPeriods) {
  CosineAnnealingWarmRestarts schedule(sgd_, 2, 2);
  const auto half = [](int at, int length) {
    return 0.5 + 0.5 * std::cos(std::numbers::pi * at / length);
  };
  expect_factors(schedule, 16, [&](int t) {
    return t < 2 ? half(t, 2) : t < 6 ? half(t - 2, 4) : t < 14 ? half(t - 6, 8) : half(t - 14, 16);
  });
  EXPECT_NEAR(curves::warm_restarts(3, 1, 0.1)(0.5, 3'000'000'000'001), half(1, 3) * 0.4 + 0.1,
              1e-12);
}

TEST_F(ScheduleTest, ConstantPolynomialAndSwa) {
  {
    ConstantLR schedule(sgd_, 0.5, 3);
    expect_factors(schedule, 5, [](int t) { return t < 3 ? 0.5 : 1; });
  }
  EXPECT_NEAR(curves::polynomial(4, 2)(0.5, 1), 0.5 * 0.5625, 1e-12);
  EXPECT_EQ(curves::polynomial(4, 2)(0.5, 9), 0);
  EXPECT_NEAR(curves::swa(0.1, 4, false)(0.5, 1), 0.4, 1e-12);
  EXPECT_NEAR(curves::swa(0.1, 4)(0.5, 2), 0.3, 1e-12);
  EXPECT_NEAR(curves::swa(0.1, 4)(0.5, 9), 0.1, 1e-12);
}

TEST_F(ScheduleTest, CyclesRiseAndFall) {
  const LRCurve curve = curves::cyclic(1, 2, 2, 4, [](int64_t n) { return std::pow(0.5, n - 1); });
  const std::vector<double> expected = {1, 1.5, 2, 1.75, 1.5, 1.25, 1, 1.25, 1.5, 1.375};
  for (size_t t = 0; t < expected.size(); ++t) {
    EXPECT_NEAR(curve(7, static_cast<int64_t>(t)), expected[t], 1e-12) << t;
  }
}

TEST_F(ScheduleTest, LinearReachesTheEndFactor) {
  LinearLR schedule(sgd_, 0.2, 1, 4);
  expect_factors(schedule, 7, [](int t) { return t < 4 ? 0.2 + 0.2 * t : 1; });
}

TEST_F(ScheduleTest, LambdaIsTheFactor) {
  LambdaLR schedule(sgd_, [](int64_t t) { return 1.0 / static_cast<double>(t + 1); });
  expect_factors(schedule, 4, [](int t) { return 1.0 / (t + 1); });
}

TEST_F(ScheduleTest, SequenceCountsEachPartsOwnSteps) {
  SequentialLR schedule(sgd_, {{curves::linear(0, 1, 2), 2}, {curves::exponential(0.5), 1}});
  expect_factors(schedule, 6, [](int t) { return t < 2 ? 0.5 * t : std::pow(0.5, t - 2); });
}

TEST_F(ScheduleTest, OneCycleVariesMomentumInversely) {
  OneCycleLR schedule(sgd_, 1, 10, {.cosine = false});
  // From 1 / 25 at step 0 to 1 at step 2, and to 1 / 25e4 at step 9; momentum varies inversely.
  const double low = 1.0 / 25, end = low / 1e4;
  for (int t = 0; t < 10; ++t) {
    const double rate = t <= 2 ? low + (1 - low) * t / 2 : 1 + (end - 1) * (t - 2) / 7;
    const double momentum = t <= 2 ? 0.95 - 0.05 * t : 0.85 + 0.1 * (t - 2) / 7;
    EXPECT_NEAR(sgd_.lr(0), rate, 1e-12) << t;
    EXPECT_NEAR(sgd_.lr(1), rate, 1e-12) << t;
    EXPECT_EQ(sgd_.momentum(0), 0) << t;
    EXPECT_NEAR(sgd_.momentum(1), momentum, 1e-12) << t;
    if (t < 9) schedule.step();
  }
  // Loops step once more behind the last step of the optimizer.
  schedule.step();
  EXPECT_NEAR(sgd_.lr(0), end, 1e-12);
  expect_error(ErrorCode::kValue, {"[OneCycleLR]", "10"}, [&] { schedule.step(); });
  EXPECT_EQ(schedule.steps(), 10);
}

// Expected rates are PyTorch's.
TEST_F(ScheduleTest, SchedulesAreChained) {
  Adam adam({zeros({1}).requires_grad_()}, {.lr = 0.5});
  ExponentialLR decays(adam, 0.9);
  StepLR halves(adam, 2, 0.5);
  for (const double rate : {0.5, 0.45, 0.2025, 0.18225, 0.0820125}) {
    EXPECT_NEAR(adam.lr(), rate, 1e-12);
    decays.step();
    halves.step();
  }
  Adam other({zeros({1}).requires_grad_()}, {.lr = 1});
  StepLR schedule(other, 2, 0.5);
  for (int i = 0; i < 3; ++i) schedule.step();
  other.set_lr(0, 0.1);
  for (const double rate : {0.05, 0.05, 0.025}) {
    schedule.step();
    EXPECT_NEAR(other.lr(), rate, 1e-12);
  }
}

TEST_F(ScheduleTest, OneCycleAlongCosines) {
  Adam adam({zeros({1}).requires_grad_()});
  OneCycleLR schedule(adam, 1, 20);  // rises for 5 steps
  EXPECT_NEAR(adam.lr(), 0.04, 1e-12);
  EXPECT_NEAR(adam.momentum(), 0.95, 1e-12);
  schedule.step();
  EXPECT_NEAR(adam.lr(), 0.04 + 0.96 * (1 - std::cos(std::numbers::pi / 5)) / 2, 1e-12);
  OneCycleLR shortest(adam, 3, 1, {.pct_start = 1});
  EXPECT_EQ(adam.lr(), 3);
}

TEST_F(ScheduleTest, ResumesFromItsState) {
  StepLR first(sgd_, 2, 0.5);
  for (int i = 0; i < 5; ++i) first.step();
  const double rate = sgd_.lr(0);
  sgd_.set_lr(0, 77);
  StepLR second(sgd_, 2, 0.5);
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(sgd_.lr(0), rate);
  EXPECT_EQ(second.steps(), 5);
  expect_error(ErrorCode::kValue, {"base_lr"}, [&] {
    second.load_state_dict({{"step", scalar_tensor(3, kInt64)}, {"base_lr", zeros({3})}});
  });
  EXPECT_EQ(second.steps(), 5);
}

TEST_F(ScheduleTest, RejectsNonsense) {
  expect_error(ErrorCode::kValue, {"[StepLR]", "0"}, [&] { StepLR(sgd_, 0); });
  expect_error(ErrorCode::kValue, {"[CosineAnnealingLR]"}, [&] { CosineAnnealingLR(sgd_, 0); });
  expect_error(ErrorCode::kValue, {"[OneCycleLR]"}, [&] { OneCycleLR(sgd_, 1, 0); });
  expect_error(ErrorCode::kValue, {"[SequentialLR]"}, [&] { SequentialLR(sgd_, {}); });
  expect_error(ErrorCode::kValue, {"factor"}, [&] { ReduceLROnPlateau(sgd_, {.factor = 1}); });
}

TEST_F(ScheduleTest, PlateauReducesWhenNothingImproves) {
  ReduceLROnPlateau schedule(
      sgd_, {.factor = 0.5, .patience = 1, .threshold = 0.1, .cooldown = 1, .min_lr = 0.2});
  // Metrics, and the first group's rate after each. 9.5 is less than a tenth better than 10.
  const double steps[][2] = {{10, 0.5}, {9.5, 0.5}, {NAN, 0.25}, {10, 0.25}, {10, 0.25},
                             {10, 0.2}, {1, 0.2},   {2, 0.2},    {2, 0.2}};
  for (const auto& [metric, rate] : steps) {
    schedule.step(metric);
    EXPECT_EQ(sgd_.lr(0), rate) << "after " << metric;
  }
  EXPECT_EQ(schedule.best(), 1);
  EXPECT_EQ(sgd_.lr(1), 0.25);
  ReduceLROnPlateau other(sgd_);
  other.load_state_dict(schedule.state_dict());
  EXPECT_EQ(other.best(), 1);
}

TEST_F(ScheduleTest, PlateauOfAMetricThatGrows) {
  ReduceLROnPlateau schedule(
      sgd_, {.maximize = true, .factor = 0.5, .patience = 0, .threshold = 0.5, .relative = false});
  schedule.step(1);
  schedule.step(1.6);
  EXPECT_EQ(sgd_.lr(0), 0.5);
  schedule.step(2);
  EXPECT_EQ(sgd_.lr(0), 0.25);
}

// pytorch/pytorch#47513: a relative threshold of a negative best value pointed to worse ones.
TEST_F(ScheduleTest, PlateauOfANegativeMetric) {
  for (const bool maximize : {false, true}) {
    ReduceLROnPlateau schedule(sgd_, {.maximize = maximize, .threshold = 0.1});
    schedule.step(-10);
    EXPECT_EQ(schedule.best(), -10);
    schedule.step(maximize ? -9.5 : -10.5);  // less than a tenth better
    EXPECT_EQ(schedule.best(), -10);
    schedule.step(maximize ? -10.5 : -9.5);  // worse
    EXPECT_EQ(schedule.best(), -10);
    schedule.step(maximize ? -8.5 : -11.5);
    EXPECT_EQ(schedule.best(), maximize ? -8.5 : -11.5);
  }
}

}  // namespace
}  // namespace mytorch::nn::optim
