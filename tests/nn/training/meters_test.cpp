#include "mytorch/nn/training/meters.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;

Tensor classes(const std::vector<int64_t>& list) { return tensor(list); }

TEST(MeanMeter, WeightsNumbersAndTensors) {
  MeanMeter meter;
  EXPECT_TRUE(std::isnan(meter.value()));
  meter.add(1.0);
  meter.add(4.0, 2);
  EXPECT_DOUBLE_EQ(meter.value(), 3);
  meter.add(filled({1}, {11}).requires_grad_(), 1);
  EXPECT_DOUBLE_EQ(meter.value(), 5);
  meter.reset();
  EXPECT_TRUE(std::isnan(meter.value()));
  expect_error(ErrorCode::kShape, {"[MeanMeter]", "(2,)"}, [&] { meter.add(filled({2}, {1, 2})); });
}

TEST(AccuracyMeter, CountsTargetsAmongTheHighestScores) {
  const Tensor scores = filled({4, 3}, {1, 2, 3, 3, 2, 1, 1, 3, 2, 1, 2, 3});
  AccuracyMeter accuracy;
  TopKMeter top2(2), top9(9);
  EXPECT_TRUE(std::isnan(accuracy.value()));
  for (TopKMeter* meter : {static_cast<TopKMeter*>(&accuracy), &top2, &top9}) {
    meter->add(scores, classes({2, 1, 0, 1}));
    meter->add(scores, classes({2, 0, 1, 2}));
    EXPECT_EQ(meter->count(), 8);
  }
  EXPECT_DOUBLE_EQ(accuracy.value(), 5.0 / 8);
  EXPECT_DOUBLE_EQ(top2.value(), 7.0 / 8);
  EXPECT_DOUBLE_EQ(top9.value(), 1);
  top2.reset();
  EXPECT_EQ(top2.count(), 0);
  expect_error(ErrorCode::kShape, {"[TopKMeter]", "(4, 3)", "(3,)"}, [&] {
    top2.add(scores, classes({0, 1, 2}));
  });
  expect_error(ErrorCode::kValue, {"k 0"}, [] { TopKMeter(0); });
}

TEST(ConfusionMatrix, GivesPrecisionAndRecallOfEachClass) {
  ConfusionMatrix matrix(3);
  matrix.add(classes({0, 0, 1, 1, 1}), classes({0, 1, 1, 1, 0}));
  matrix.add(filled({1, 3}, {0, 5, 1}), classes({2}));
  expect_values(matrix.tensor(), {1, 1, 0, 1, 2, 0, 0, 1, 0});
  EXPECT_EQ(matrix.count(1, 0), 1);
  EXPECT_DOUBLE_EQ(matrix.accuracy(), 0.5);
  EXPECT_DOUBLE_EQ(matrix.precision(1), 0.5);
  EXPECT_DOUBLE_EQ(matrix.recall(1), 2.0 / 3);
  EXPECT_TRUE(std::isnan(matrix.precision(2)));
  EXPECT_DOUBLE_EQ(matrix.recall(2), 0);
  EXPECT_EQ(matrix.str({"cat", "dog"}),
            "        cat   dog     2 precision recall\n"
            "cat       1     1     0    0.5000 0.5000\n"
            "dog       1     2     0    0.5000 0.6667\n"
            "2         0     1     0       nan 0.0000\n");
  expect_error(ErrorCode::kValue, {"[ConfusionMatrix]", "class 3"}, [&] {
    matrix.add(classes({0, 3}), classes({0, 0}));
  });
  expect_error(ErrorCode::kValue, {"class -1"}, [&] { matrix.add(classes({0}), classes({-1})); });
  EXPECT_EQ(matrix.count(0, 0), 1);  // nothing was added
  expect_error(ErrorCode::kShape, {"[ConfusionMatrix]"}, [&] {
    matrix.add(classes({0, 1}), classes({0}));
  });
  expect_error(ErrorCode::kValue, {"0 classes"}, [] { ConfusionMatrix(0); });
}

}  // namespace
}  // namespace mytorch::nn
