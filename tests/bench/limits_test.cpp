#include "bench/harness/limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "hwy/highway.h"

namespace mytorch::bench {
namespace {

// ---- rates

class Rate : public ::testing::TestWithParam<std::tuple<Resource, int>> {};

TEST_P(Rate, IsPlausible) {
  const auto [resource, threads] = GetParam();
  Limit limit(resource, 1 << 16, threads);
  // Several threads may wait for a processor and then be arbitrarily slow.
  EXPECT_GT(limit.sample(), threads == 1 ? 1e7 : 0);
  EXPECT_LT(limit.sample(), 1e13);
}

std::string rate_name(const ::testing::TestParamInfo<Rate::ParamType>& info) {
  static constexpr const char* kResources[] = {"Copy", "Read", "Write", "MultiplyAdd"};
  const auto [resource, threads] = info.param;
  return kResources[static_cast<int>(resource)] + std::string("Threads") + std::to_string(threads);
}

INSTANTIATE_TEST_SUITE_P(Limits, Rate,
                         ::testing::Combine(::testing::Values(Resource::kCopy, Resource::kRead,
                                                              Resource::kWrite,
                                                              Resource::kMultiplyAdd),
                                            ::testing::Values(1, 2)),
                         rate_name);

// ---- loops, for each instruction set of the processor

constexpr int64_t kSizes[] = {0, 1, 15, 16, 17, 31, 47, 48, 992, 1000, 4095, 4096, 5000, 70001};
constexpr int64_t kAfter = 64;  // floats beyond the end, which no loop may change
constexpr float kUntouched = -1;

class Loop : public ::testing::TestWithParam<std::tuple<int64_t, int>> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(std::get<0>(GetParam())); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
  static int threads() { return std::get<1>(GetParam()); }

  static std::vector<float> counted(int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    std::iota(values.begin(), values.end(), 1.0f);
    return values;
  }
  // Runs the loop over `to` and returns the written values and the elements beyond the end.
  static std::vector<float> result_of(const std::function<void()>& loop, const Buffer& to,
                                      int64_t n) {
    std::fill_n(to.data(), n + kAfter, kUntouched);
    loop();
    return {to.data(), to.data() + n + kAfter};
  }
};

TEST_P(Loop, CopiesEveryElementAndNoOther) {
  for (const int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const std::vector<float> from = counted(n);
    std::vector<float> expected = from;
    expected.resize(from.size() + kAfter, kUntouched);
    const Buffer to(expected.size() * sizeof(float));
    const Loops loops = copy_loops(from.data(), to.data(), n, threads());
    for (size_t i = 0; i < loops.size(); ++i) {
      EXPECT_EQ(result_of(loops[i], to, n), expected) << "loop " << i;
    }
  }
}

TEST_P(Loop, WritesEveryElementAndNoOther) {
  for (const int64_t n : kSizes) {
    SCOPED_TRACE(n);
    std::vector<float> expected(static_cast<size_t>(n), 1.0f);
    expected.resize(expected.size() + kAfter, kUntouched);
    const Buffer to(expected.size() * sizeof(float));
    const Loops loops = write_loops(to.data(), n, threads());
    for (size_t i = 0; i < loops.size(); ++i) {
      EXPECT_EQ(result_of(loops[i], to, n), expected) << "loop " << i;
    }
  }
}

TEST_P(Loop, ReadsEveryElementOnce) {
  for (const int64_t n : kSizes) {
    // Integers up to 2^24 are exact in any order of additions.
    std::vector<float> from(static_cast<size_t>(n));
    float expected = 0;
    for (size_t i = 0; i < from.size(); ++i) expected += from[i] = static_cast<float>(i % 64);
    EXPECT_EQ(sum_floats(from.data(), n), expected) << n;
  }
}

std::string loop_name(const ::testing::TestParamInfo<Loop::ParamType>& info) {
  const auto [target, threads] = info.param;
  return hwy::TargetName(target) + std::string("Threads") + std::to_string(threads);
}

INSTANTIATE_TEST_SUITE_P(
    Targets, Loop,
    ::testing::Combine(::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                       ::testing::Values(1, 2, 3)),
    loop_name);

}  // namespace
}  // namespace mytorch::bench
