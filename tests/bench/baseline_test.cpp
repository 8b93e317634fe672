// What counts as slower than an earlier run. The times are made up.
#include "bench/harness/baseline.h"

#include <gtest/gtest.h>

#include <sstream>

namespace mytorch::bench {
namespace {

Row row(const std::string& name, const std::string& backend, double seconds, double deviation) {
  Row made;
  made.what.suite = "made";
  made.what.name = name;
  made.backend = backend;
  made.cache = "warm";
  made.time.median = seconds;
  made.time.mad = deviation;
  made.time.least = seconds - 3 * deviation;
  return made;
}

Other result(const std::string& name, const std::string& backend, double seconds,
             double deviation) {
  Other made;
  made.name = name;
  made.label = backend;
  made.cache = "warm";
  made.dtype = "float32";
  made.threads = 1;
  made.seconds = seconds;
  made.deviation = deviation;
  made.device = "cpu";
  return made;
}

TEST(Baseline, ADifferenceBeyondTheSpreadCounts) {
  const auto now = [](double median, double mad) {
    return Summary{.median = median, .mad = mad, .least = median - 3 * mad};
  };
  EXPECT_EQ(compare(1, 0, now(1.5, 0)), Verdict::kSlower);
  EXPECT_EQ(compare(1.5, 0, now(1, 0)), Verdict::kFaster);
  EXPECT_EQ(compare(1, 0.1, now(1.5, 0.1)), Verdict::kSame);    // 0.5 < 3 * 0.2
  EXPECT_EQ(compare(1, 0.1, now(1.7, 0.1)), Verdict::kSlower);  // 0.7 > 3 * 0.2
  EXPECT_EQ(compare(1.7, 0.1, now(1, 0.1)), Verdict::kFaster);
  EXPECT_EQ(compare(1, 0, now(1.019, 0)), Verdict::kSame);  // below 2 %
  EXPECT_EQ(compare(1, 0, now(1.021, 0)), Verdict::kSlower);
}

TEST(Baseline, RowsWhoseLeastTimeIsSlowerAreSlowerOnABusyMachine) {
  EXPECT_EQ(compare(1, 0.1, {.median = 5, .mad = 2, .least = 1.4}), Verdict::kSlower);
  EXPECT_EQ(compare(1, 0.1, {.median = 5, .mad = 2, .least = 1.2}), Verdict::kSame);
  EXPECT_EQ(compare(1, 0, {.median = 5, .mad = 2, .least = 1.01}), Verdict::kSame);
}

TEST(Baseline, RowsMatchByEverythingThatDescribesThem) {
  const std::vector<Row> rows = {row("a", "x", 2, 0), row("a", "y", 1, 0), row("b", "x", 1, 0)};
  const Other same = result("a", "x", 1, 0);
  EXPECT_EQ(changes_of(rows, {same}).size(), 1u);
  EXPECT_EQ(changes_of(rows, {same})[0].row, 0u);
  EXPECT_EQ(changes_of(rows, {same})[0].verdict, Verdict::kSlower);
  for (int field = 0; field < 6; ++field) {
    Other other = same;
    if (field == 0) other.name = "c";
    if (field == 1) other.label = "z";
    if (field == 2) other.cache = "cold";
    if (field == 3) other.dtype = "float64";
    if (field == 4) other.threads = 2;
    if (field == 5) other.device = "cuda:0";
    EXPECT_TRUE(changes_of(rows, {other}).empty()) << field;
  }
  Other old = same;  // files of earlier versions name no device
  old.device.clear();
  EXPECT_EQ(changes_of(rows, {old}).size(), 1u);
}

TEST(Baseline, WhatIsSlowOnceIsMeasuredAgain) {
  std::ostringstream out;
  for (const int slow_times : {0, 1, 2, 3}) {
    std::vector<Row> rows = {row("a", "x", 2, 0), row("b", "x", 1, 0)};
    auto changes = changes_of(rows, {result("a", "x", 1, 0), result("b", "x", 1, 0)});
    int measured = 1;
    confirm(
        rows, changes,
        [&](const Row& again) {
          EXPECT_EQ(again.what.name, "a");
          const double seconds = ++measured > slow_times + 1 ? 1 : 2;
          return std::vector<Row>{row("a", "y", 0.1, 0), row("a", "x", seconds, 0)};
        },
        out);
    EXPECT_EQ(measured, slow_times == 0 ? 2 : 3);
    EXPECT_EQ(changes[0].verdict, slow_times < 2 ? Verdict::kSame : Verdict::kSlower);
    EXPECT_EQ(rows[0].time.median, slow_times < 2 ? 1 : 2);
    EXPECT_EQ(print_changes(rows, changes, out), slow_times < 2 ? 0 : 1);
  }
  EXPECT_NE(out.str().find("slower: a"), std::string::npos);
  EXPECT_NE(out.str().find("baseline: 1 slower, 0 faster, 1 within"), std::string::npos);
}

}  // namespace
}  // namespace mytorch::bench
