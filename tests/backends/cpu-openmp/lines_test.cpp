// Running sums, sorting and selection along a dimension.
#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/cumsum.h"
#include "mytorch/abi_ops/sort.h"
#include "mytorch/abi_ops/topk.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {
namespace {

constexpr mt_dtype kIndex = sdk::dtype_of<int64_t>;

class Cumsum : public ::testing::TestWithParam<std::tuple<mt_dtype, mt_dtype>> {};
INSTANTIATE_TEST_SUITE_P(, Cumsum,
                         ::testing::Combine(::testing::ValuesIn(kAllDtypes),
                                            ::testing::ValuesIn(kAllDtypes)),
                         dtype_pair_case);

TEST_P(Cumsum, AgreesWithTheReferenceAlongEveryDimension) {
  const auto& [from, to] = GetParam();
  Random random(9);
  for (const int64_t dim : {0, 1, 2}) {
    const TestTensor self = random.filled(from, {3, 20, 4});
    mt_args_cumsum args{};
    args.self = self, args.dim = dim;
    expect_same(cpu::register_scan, "cumsum", args, &mt_args_cumsum::out, to, {3, 20, 4}, random, 8,
                20);
  }
}

// Of integers, so that every order of additions gives the same sums.
TEST(CumsumOfLongLines, IsThatOfTheDefinition) {
  Random random(12);
  struct Case {
    Shape shape;
    int64_t dim;
  };
  for (const auto& [shape, dim] :
       {Case{{65536}, 0}, {{140001}, 0}, {{2, 70000}, 1}, {{5, 70000}, 1}}) {
    for (const int64_t layout : {0, 1, 2, 3}) {
      const TestTensor self = random.laid_out(kIndex, shape, layout);
      random.fill(self);
      const TestTensor expected = TestTensor::empty(kIndex, shape);
      mt_args_cumsum args{};
      args.self = self, args.dim = dim, args.out = expected;
      ASSERT_EQ(run_op("cumsum", args, kIndex), "");
      for (const int threads : {1, 3, 7}) {
        const TestTensor out = random.tensor(kIndex, shape);
        args.out = out;
        TestContext context(threads);
        ASSERT_EQ(run_cpu(cpu::register_scan, "cumsum", args, context), MT_OK);
        ASSERT_EQ(out.values<int64_t>(), expected.values<int64_t>());
      }
    }
  }
}

TEST(CumsumOfLongLines, HasTheSameBitsForAnyNumberOfThreadsAndInPlace) {
  Random random(13);
  const TestTensor self = random.laid_out(sdk::dtype_of<double>, {100000}, 0);
  random.fill(self);
  std::vector<std::vector<double>> results;
  for (const int threads : {1, 2, 5}) {
    for (const bool in_place : {false, true}) {
      const TestTensor out = TestTensor::empty(sdk::dtype_of<double>, {100000});
      std::copy_n(self.view().data<double>(), 100000, out.view().data<double>());
      mt_args_cumsum args{};
      args.self = in_place ? out : self, args.out = out;
      TestContext context(threads);
      ASSERT_EQ(run_cpu(cpu::register_scan, "cumsum", args, context), MT_OK);
      results.push_back(out.values<double>());
    }
  }
  for (const std::vector<double>& result : results) EXPECT_EQ(result, results.front());
}

// ---- sort, with NaN among the elements

class Sort : public ::testing::TestWithParam<std::tuple<mt_dtype, bool>> {};
INSTANTIATE_TEST_SUITE_P(, Sort,
                         ::testing::Combine(::testing::ValuesIn(kAllDtypes), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(sdk::dtype_name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_descending" : "_ascending");
                         });

struct Lines {
  Shape shape;
  int64_t dim;
};
const Lines kLines[] = {{{}, -1}, {{3, 20, 4}, 1}, {{2, 300}, -1}, {{3000}, -1}, {{2, 0}, -1}};

struct Sorted {
  TestTensor values, indices;
};
Sorted sorted_by_reference(const TestTensor& self, int64_t dim, bool descending) {
  const Shape shape(self.view().shape().begin(), self.view().shape().end());
  const Sorted out = {TestTensor::empty(self.dtype(), shape), TestTensor::empty(kIndex, shape)};
  mt_args_sort_stable args{};
  args.self = self, args.dim = dim, args.descending = descending;
  args.values = out.values, args.indices = out.indices;
  EXPECT_EQ(run_op("sort.stable", args, self.dtype()), "");
  return out;
}

TEST_P(Sort, AgreesWithTheReference) {
  const auto& [dtype, descending] = GetParam();
  Random random(10);
  for (const auto& [shape, dim] : kLines) {
    const TestTensor self = random.filled(dtype, shape, true);
    const Sorted expected = sorted_by_reference(self, dim, descending);
    const TestTensor values = random.tensor(dtype, shape), indices = random.tensor(kIndex, shape);
    mt_args_sort_stable args{};
    args.self = self, args.dim = dim, args.descending = descending;
    args.values = values, args.indices = indices;
    TestContext context(2);
    ASSERT_EQ(run_cpu(cpu::register_sorting, "sort.stable", args, context), MT_OK);
    expect_near(values, expected.values, 0, 1, "values");
    ASSERT_EQ(indices.values<int64_t>(), expected.indices.values<int64_t>());
  }
}

TEST_P(Sort, TopkIsTheBeginningOfTheSortedLine) {
  const auto& [dtype, descending] = GetParam();
  Random random(10);
  for (const auto& [shape, dim] : kLines) {
    if (shape.empty()) continue;
    const TestTensor self = random.filled(dtype, shape, true);
    const TestTensor order = sorted_by_reference(self, dim, descending).indices;
    const size_t d = dim < 0 ? shape.size() - 1 : static_cast<size_t>(dim);
    for (const int64_t k : {shape[d] / 20, shape[d] / 2, shape[d]}) {
      Shape kept = shape;
      kept[d] = k;
      const TestTensor values = random.tensor(dtype, kept), indices = random.tensor(kIndex, kept);
      mt_args_topk args{};
      args.self = self, args.k = k, args.dim = dim, args.largest = descending, args.sorted = 1;
      args.values = values, args.indices = indices;
      TestContext context(2);
      ASSERT_EQ(run_cpu(cpu::register_sorting, "topk", args, context), MT_OK);
      const TestTensor head = order.as_strided(
          kept, Shape(order.view().strides().begin(), order.view().strides().end()));
      ASSERT_EQ(indices.values<int64_t>(), head.values<int64_t>());
    }
  }
}

// ---- topk of few elements of a long line, by insertion

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Line {
  const char* name;
  float (*at)(int64_t);
};
const Line kLongLines[] = {
    {"equal", [](int64_t) { return 3.0f; }},
    {"nan", [](int64_t) { return kNan; }},
    {"rising", [](int64_t i) { return static_cast<float>(i % 100); }},
    {"falling", [](int64_t i) { return static_cast<float>(-(i % 120)); }},
    {"nan_first",
     [](int64_t i) { return i < 300 || i % 97 == 0 ? kNan : static_cast<float>(i * 7919 % 101); }},
    {"zeros_of_both_signs", [](int64_t i) { return i % 2 == 0 ? -0.0f : 0.0f; }},
    {"rare_largest",
     [](int64_t i) { return i % 499 == 3 ? 1.0f : static_cast<float>(i * 7919 % 101) / -100; }},
};

class TopkOfLongLine : public ::testing::TestWithParam<std::tuple<Line, mt_dtype, bool>> {};
INSTANTIATE_TEST_SUITE_P(
    , TopkOfLongLine,
    ::testing::Combine(::testing::ValuesIn(kLongLines),
                       ::testing::Values(sdk::dtype_of<float>, sdk::dtype_of<double>,
                                         sdk::dtype_of<sdk::Half>, sdk::dtype_of<int8_t>, kIndex),
                       ::testing::Bool()),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" +
             sdk::dtype_name(std::get<1>(info.param)) +
             (std::get<2>(info.param) ? "_largest" : "_smallest");
    });

TEST_P(TopkOfLongLine, IsTheBeginningOfTheStableOrder) {
  const Line line = std::get<0>(GetParam());
  const mt_dtype dtype = std::get<1>(GetParam());
  const bool largest = std::get<2>(GetParam());
  constexpr int64_t kN = 2000;
  const TestTensor memory = TestTensor::empty(dtype, {2 * kN});
  const TestTensor strided = memory.as_strided({kN}, {2});
  const TestTensor contiguous = TestTensor::empty(dtype, {kN});
  for (int64_t i = 0; i < kN; ++i) {
    const float x = line.at(i);
    sdk::visit_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* data = memory.view().data<T>() + 2 * i;
      data[0] = sdk::convert<T>(sdk::is_floating(dtype) || x == x ? x : 0.0f);
      data[1] = sdk::convert<T>(99.0);
      contiguous.view().data<T>()[i] = data[0];
    });
  }
  const auto x = contiguous.values<double>();
  std::vector<int64_t> order(kN);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const double p = x[static_cast<size_t>(largest ? b : a)];
    const double q = x[static_cast<size_t>(largest ? a : b)];
    return p < q || (p == p && q != q);  // NaN is the largest
  });
  for (const int64_t k : {1, 10, 120, 130, 1999}) {
    for (const TestTensor& self : {contiguous, strided}) {
      const TestTensor values = TestTensor::empty(dtype, {k});
      const TestTensor indices = TestTensor::empty(kIndex, {k});
      mt_args_topk args{};
      args.self = self, args.k = k, args.dim = 0, args.largest = largest, args.sorted = 1;
      args.values = values, args.indices = indices;
      TestContext context(2);
      ASSERT_EQ(run_cpu(cpu::register_sorting, "topk", args, context), MT_OK);
      ASSERT_EQ(indices.values<int64_t>(), std::vector<int64_t>(order.begin(), order.begin() + k))
          << "k " << k;
    }
  }
}

}  // namespace
}  // namespace mytorch::testing
