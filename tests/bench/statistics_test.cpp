#include "bench/harness/statistics.h"

#include <gtest/gtest.h>

#include "mytorch/error.h"

namespace mytorch::bench {
namespace {

TEST(Statistics, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({5, 1, 4}), 4);
  EXPECT_EQ(median({5, 1, 4, 2}), 3);
  EXPECT_EQ(median({2, 2, 2, 9}), 2);
  EXPECT_THROW(median({}), Error);
}

TEST(Statistics, MedianDeviationFromACenter) {
  // Distances from 3: 2 1 0 1 97.
  EXPECT_EQ(median_deviation({1, 2, 3, 4, 100}, 3), 1);
  EXPECT_EQ(median_deviation({7, 7, 7}, 7), 0);
}

TEST(Statistics, OutliersAreExcluded) {
  std::vector<double> values;
  for (int i = 0; i < 20; ++i) values.push_back(100 + i % 5);  // 100 ... 104
  const Summary clean = summarize(values);
  EXPECT_EQ(clean.median, 102);
  EXPECT_EQ(clean.mad, 1);
  EXPECT_EQ(clean.samples, 20u);
  EXPECT_EQ(clean.outliers, 0u);
  EXPECT_EQ(clean.least, 100);

  // Interruptions, which would move a mean to 330.
  for (const double stumble : {1000.0, 2500.0, 3000.0}) values.push_back(stumble);
  const Summary noisy = summarize(values);
  EXPECT_EQ(noisy.median, 102);
  EXPECT_EQ(noisy.mad, 1);
  EXPECT_EQ(noisy.samples, 20u);
  EXPECT_EQ(noisy.outliers, 3u);
}

TEST(Statistics, OutliersLieBeyondFiveDeviations) {
  // Median 10, median deviation 1: the limit is 5 * 1.4826 = 7.413 on both sides.
  const std::vector<double> inside = {8, 9, 9, 9, 10, 10, 11, 11, 11, 12, 17.4, 2.6};
  EXPECT_EQ(summarize(inside).outliers, 0u);
  const std::vector<double> outside = {8, 9, 9, 9, 10, 10, 11, 11, 11, 12, 17.5, 2.5};
  EXPECT_EQ(summarize(outside).outliers, 2u);
}

TEST(Statistics, ACoarseClockMakesNoOutliers) {
  // More than half are equal, so the deviation is 0.
  const Summary ticks = summarize({1000, 1000, 1000, 1000, 1000.9, 999.1});
  EXPECT_EQ(ticks.outliers, 0u);
  EXPECT_EQ(ticks.median, 1000);
  EXPECT_EQ(summarize({1000, 1000, 1000, 1002}).outliers, 1u);
}

}  // namespace
}  // namespace mytorch::bench
