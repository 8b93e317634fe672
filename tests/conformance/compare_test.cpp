// Comparisons of results that records leave partly open.
#include "conformance/compare.h"

#include <gtest/gtest.h>

#include <limits>

#include "mytorch/ops/full.h"

namespace mytorch::conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor filled(std::vector<int64_t> shape, double value, double first) {
  const Tensor result = full(shape, value);
  static_cast<float*>(result.raw_mutable_data())[0] = static_cast<float>(first);
  return result;
}

Arguments operand(std::vector<int64_t> shape) {
  Arguments arguments;
  arguments.values.emplace_back("self", Value(full(shape, 1.0)));
  return arguments;
}

TEST(SkippedSlices, AreThoseWithNonFiniteElementsOnBothSides) {
  std::string problem;
  const std::vector<Value> found = {filled({2, 3, 3}, 1, kNan)};
  const std::vector<Value> expected = {filled({2, 3, 3}, 1, -kInfinity)};
  EXPECT_EQ(skipped_slices(operand({2, 3, 3}), found, expected, &problem),
            (std::vector<bool>{true, false}));
  EXPECT_EQ(problem, "");
}

TEST(SkippedSlices, ANanOnOneSideAloneIsAProblem) {
  const std::vector<Value> finite = {filled({3, 3}, 1, 1)}, other = {filled({3, 3}, 1, kNan)};
  std::string problem;
  EXPECT_EQ(skipped_slices(operand({3, 3}), finite, other, &problem), std::vector<bool>{false});
  EXPECT_EQ(problem, "the results are finite, expected some NaN or infinity");
  skipped_slices(operand({3, 3}), other, finite, &problem);
  EXPECT_EQ(problem, "the results have non-finite elements, expected none");
}

TEST(SkippedSlices, AreNotCompared) {
  OpRecord op;
  op.meaning = "primitive";
  const Arguments arguments = operand({2, 2, 2});
  const Value found = filled({2, 2, 2}, 1, kNan), expected = filled({2, 2, 2}, 1, 5);
  Tolerance tolerance;
  EXPECT_NE(difference(op, arguments, found, expected, tolerance), "");
  tolerance.skipped = {true, false};
  EXPECT_EQ(difference(op, arguments, found, expected, tolerance), "");
  tolerance.skipped = {false, true};
  EXPECT_NE(difference(op, arguments, found, expected, tolerance), "");
}

TEST(Difference, GrowsByWhatResultsMoveNearby) {
  OpRecord op;
  op.meaning = "primitive";
  const Arguments arguments = operand({4});
  const Value expected = filled({4}, 1, 1), found = filled({4}, 1, 1.1);
  const Value far = filled({4}, 1, 1.02), near = filled({4}, 1, 1.0001);
  Tolerance tolerance;
  EXPECT_NE(difference(op, arguments, found, expected, tolerance), "");
  tolerance.nearby = {&near};
  EXPECT_NE(difference(op, arguments, found, expected, tolerance), "");
  tolerance.nearby = {&near, &far};
  EXPECT_EQ(difference(op, arguments, found, expected, tolerance), "");
}

TEST(Difference, AnInfiniteElementIsNearTheEndOfItsRange) {
  OpRecord op;
  op.meaning = "primitive";
  const Arguments arguments = operand({4});
  const Value infinite = filled({4}, 1, kInfinity);
  EXPECT_EQ(difference(op, arguments, infinite, filled({4}, 1, 1e38), {}), "");
  EXPECT_NE(difference(op, arguments, infinite, filled({4}, 1, -1e38), {}), "");
  EXPECT_NE(difference(op, arguments, infinite, filled({4}, 1, 1e35), {}), "");
}

}  // namespace
}  // namespace mytorch::conformance
