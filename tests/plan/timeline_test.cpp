// Timelines that are computed by hand, and random ones against a clock that advances in small
// steps.
#include "plan/timeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "plan/data_parallel.h"
#include "tests/plan/mistakes.h"

namespace mytorch::plan {
namespace {

using Times = std::vector<double>;

// ---- run() ----

TEST(PlanTimeline, OfNothingEndsAtOnce) {
  EXPECT_EQ(run({}, {}, 1).seconds, 0);
  const Ends ends = run({{0}, {0}}, {{0, 1}}, 0.5);
  EXPECT_EQ(ends.computations, (Times{0, 0}));
  EXPECT_EQ(ends.communications, Times{0});
}

TEST(PlanTimeline, RunsCommunicationBesideLaterComputations) {
  const Ends ends = run({{2}, {3}, {5}}, {{4, 0}, {1, 2}}, 1);
  EXPECT_EQ(ends.computations, (Times{2, 5, 10}));
  EXPECT_EQ(ends.communications, (Times{6, 11}));
  EXPECT_EQ(ends.seconds, 11);
}

TEST(PlanTimeline, HasOneChannel) {
  const Ends ends = run({{2}, {3}}, {{9, 0}, {1, 1}}, 1);
  EXPECT_EQ(ends.communications, (Times{11, 12}));
  EXPECT_EQ(ends.seconds, 12);
}

TEST(PlanTimeline, SlowsComputationsBesideCommunication) {
  // From 2 to 4 the second computation advances by 1 of its 4 seconds.
  const Ends ends = run({{2}, {4}}, {{2, 0}}, 0.5);
  EXPECT_EQ(ends.computations, (Times{2, 7}));
  EXPECT_EQ(ends.communications, Times{4});
}

TEST(PlanTimeline, LetsComputationsWaitForCommunication) {
  const Ends fast = run({{1, 0}, {1, 1}}, {{3}, {3}}, 1);
  EXPECT_EQ(fast.computations, (Times{4, 7}));
  const Ends slow = run({{1, 0}, {1, 1}}, {{3}, {3}}, 0.5);
  EXPECT_EQ(slow.computations, (Times{5, 7}));
  EXPECT_EQ(slow.communications, (Times{3, 6}));
}

TEST(PlanTimeline, WaitsForTheHost) {
  const Ends ends = run({{1, -1, 0}, {1, -1, 5}, {1, -1, 5.5}}, {{2, 0}}, 1);
  EXPECT_EQ(ends.computations, (Times{1, 6, 7}));
  EXPECT_EQ(ends.communications, Times{3});
}

// The same in small steps.
Ends stepwise(const std::vector<Computation>& computations,
              const std::vector<Communication>& communications, double rate) {
  constexpr double kStep = 1.0 / 1024;
  Ends ends;
  double compute_left = -1, channel_left = -1, now = 0;
  while (ends.computations.size() < computations.size() ||
         ends.communications.size() < communications.size()) {
    const size_t i = ends.computations.size(), j = ends.communications.size();
    if (compute_left < 0 && i < computations.size() && computations[i].issued <= now &&
        computations[i].after < static_cast<int>(j)) {
      compute_left = computations[i].seconds;
    }
    if (channel_left < 0 && j < communications.size() &&
        communications[j].after < static_cast<int>(i)) {
      channel_left = communications[j].seconds;
    }
    const double speed = channel_left > 0 ? rate : 1;
    now += kStep;
    if (compute_left >= 0 && (compute_left -= speed * kStep) <= 0) {
      ends.computations.push_back(now);
      compute_left = -1;
    }
    if (channel_left >= 0 && (channel_left -= kStep) <= 0) {
      ends.communications.push_back(now);
      channel_left = -1;
    }
  }
  ends.seconds = now;
  return ends;
}

TEST(PlanTimeline, IsThatOfAClock) {
  std::mt19937 draw(7);
  const auto below = [&](int n) { return static_cast<int>(draw() % static_cast<unsigned>(n)); };
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<Computation> computations;
    std::vector<Communication> communications;
    const int n = 1 + below(8);
    for (int i = 0; i < n; ++i) {
      // A communication that comes before the computation in a common order, so that none waits for
      // what waits for it.
      const int before = static_cast<int>(communications.size());
      computations.push_back(
          {1.0 + below(6), before > 0 && below(2) == 0 ? below(before) : -1, 1.0 * below(4 * n)});
      if (below(3) != 0) communications.push_back({1.0 + below(6), below(i + 2) - 1});
    }
    const double rate = below(2) == 0 ? 1 : 0.5;
    const Ends found = run(computations, communications, rate);
    const Ends expected = stepwise(computations, communications, rate);
    EXPECT_EQ(found.computations, expected.computations) << trial;
    EXPECT_EQ(found.communications, expected.communications) << trial;
    EXPECT_EQ(found.seconds, expected.seconds) << trial;
  }
}

TEST(PlanTimeline, NamesMistakes) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_error([] { run({{1, 0}}, {{1, 0}}, 1); }, "wait for each other");
  expect_error([] { run({{1, 1}}, {{1}}, 1); }, "waits for number 1 of 1");
  expect_error([] { run({{1}}, {{1, -2}}, 1); }, "waits for number -2 of 1");
  expect_error([] { run({{-1}}, {}, 1); }, "a computation of -1 seconds");
  expect_error([&] { run({}, {{nan}}, 1); }, "a communication of nan seconds");
  expect_error([] { run({{1, -1, -3}}, {}, 1); }, "issued after of -3 seconds");
  for (const double rate : {0.0, 1.5, -1.0, nan}) {
    expect_error([&] { run({}, {}, rate); }, "give more than 0, at most 1");
  }
}

// ---- buckets_of() ----

TEST(PlanTimeline, FillsBucketsInTheOrderOfGradients) {
  const std::vector<Bucket> buckets =
      buckets_of({{3, 0}, {3, 1}, {3, 1}, {20, 4}, {4, 5}, {5, 6}, {2, 7}}, 6, 10);
  ASSERT_EQ(buckets.size(), 5);
  const double bytes[] = {6, 3, 20, 9, 2};
  const int last[] = {1, 1, 4, 6, 7};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(buckets[i].bytes, bytes[i]) << i;
    EXPECT_EQ(buckets[i].last, last[i]) << i;
  }
  EXPECT_TRUE(buckets_of({}, 6, 10).empty());
}

// ---- data_seconds() ----

// Two ranks whose link moves 1 GB/s: an all_reduce of a gigabyte takes a second.
Machine slow_machine() {
  Machine m = machine_of("h100", "ib400");
  m.inner = {"", 1e9, 1e-12, 1};
  m.data_overlap = 1;
  return m;
}
constexpr double kParameters = 0.5e9;

double exchanged(int zero, double micro_batches, const Machine& machine = slow_machine()) {
  Layout layout;
  layout.data = 2;
  layout.zero = zero;
  return data_seconds({{1, 3, kParameters, 0}, {1, 1, kParameters, 0}}, layout, Precision(),
                      machine, micro_batches);
}

TEST(PlanDataParallel, AddsWhatBackwardDoesNotHide) {
  // Backward ends at 1 and 4. The reductions of 2 s each run from 1 to 3 and from 4 to 6.
  EXPECT_NEAR(exchanged(0, 1), 2, 1e-9);
  EXPECT_NEAR(exchanged(0, 5), 2, 1e-9);
  // The second computation loses half of the two seconds beside the first reduction.
  Machine sharing = slow_machine();
  sharing.data_overlap = 0.5;
  EXPECT_NEAR(exchanged(0, 1, sharing), 3, 1e-9);
}

TEST(PlanDataParallel, OfShardsGathersAndReduces) {
  // Reductions of 1 s end at 2 and 5, backward at 4; half a second passes before the first forward.
  EXPECT_NEAR(exchanged(1, 1), 1 + 0.5, 1e-9);
  EXPECT_NEAR(exchanged(2, 3), 3 * 1 + 0.5, 1e-9);
  // Backward begins when its first parameters have come.
  EXPECT_NEAR(exchanged(3, 2), 2 * (0.5 + 1.5), 1e-9);
}

TEST(PlanDataParallel, OfOneRankIsFree) {
  for (int zero = 0; zero < 4; ++zero) {
    Layout layout;
    layout.zero = zero;
    EXPECT_EQ(data_seconds({{1, 1, 1e9, 0}}, layout, Precision(), slow_machine(), 3), 0);
  }
}

// What a unit does not have takes no latency either.
TEST(PlanDataParallel, OfADenseUnitIsTheTimeOfItsOwnCollectives) {
  Machine machine = slow_machine();
  machine.inner.latency = 0.25;
  const Ranks ranks{2, 1};
  const Precision precision = {};
  const double gradients = kParameters * precision.gradient;
  const double gathered = all_gather_seconds(machine, ranks, kParameters * precision.parameter);
  Layout layout;
  layout.data = 2;
  const auto seconds = [&](int zero, const std::vector<Unit>& units) {
    layout.zero = zero;
    return data_seconds(units, layout, precision, machine, 1);
  };
  const Unit dense{1, 1, kParameters, 0}, bare{1, 1, 0, 0};
  EXPECT_NEAR(seconds(0, {dense}), all_reduce_seconds(machine, ranks, gradients), 1e-9);
  EXPECT_NEAR(seconds(1, {dense}), gathered + reduce_scatter_seconds(machine, ranks, gradients),
              1e-9);
  for (int zero = 0; zero < 4; ++zero) EXPECT_EQ(seconds(zero, {bare, bare}), 0) << zero;
  // The reduction of 2.5 s begins beside the backward of the unit that has nothing to add.
  EXPECT_NEAR(seconds(0, {bare, dense}), all_reduce_seconds(machine, ranks, gradients) - 1, 1e-9);
}

TEST(PlanDataParallel, ExpertsAreReducedAmongThoseThatShareThem) {
  // All ranks have different experts, so that only what they share is reduced.
  Layout layout;
  layout.data = layout.expert = 2;
  const std::vector<Unit> units = {{1, 1, kParameters, 100 * kParameters}};
  EXPECT_NEAR(data_seconds(units, layout, Precision(), slow_machine(), 1), 2, 1e-9);
}

}  // namespace
}  // namespace mytorch::plan
