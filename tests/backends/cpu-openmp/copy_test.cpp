// copy_ and fill_: every pair of dtypes, layouts, and sizes that use non-temporal stores.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "mytorch/abi_ops/copy_.h"
#include "mytorch/abi_ops/fill_.h"
#include "tests/backends/cpu-openmp/cpu_backend.h"

namespace mytorch::testing {
namespace {

std::string copy(const TestTensor& to, const TestTensor& from, int threads = 1) {
  mt_args_copy_ args{};
  args.self = to;
  args.src = from;
  return run_cpu("copy_", args, to.dtype(), threads);
}

// Runs the same copy with the reference.
std::string reference_copy(const TestTensor& to, const TestTensor& from) {
  mt_args_copy_ args{};
  args.self = to;
  args.src = from;
  return run_op("copy_", args, to.dtype());
}

class CopyDtypes : public ::testing::TestWithParam<std::tuple<mt_dtype, mt_dtype>> {};

TEST_P(CopyDtypes, ConvertAsTheReferenceDoes) {
  const auto [from, to] = GetParam();
  const TestTensor source = tensor_of(from, {2000}, small_values(2000, from));
  for (const int64_t stride : {1, 2}) {
    const TestTensor x = source.as_strided({1000}, {stride});
    const TestTensor got = TestTensor::empty(to, {1000}), want = TestTensor::empty(to, {1000});
    ASSERT_EQ(copy(got, x), "");
    ASSERT_EQ(reference_copy(want, x), "");
    EXPECT_EQ(got.values<double>(), want.values<double>()) << "stride " << stride;
  }
}

INSTANTIATE_TEST_SUITE_P(Pairs, CopyDtypes,
                         ::testing::Combine(::testing::ValuesIn(kAllDtypes),
                                            ::testing::ValuesIn(kAllDtypes)),
                         dtype_pair_case);

class CopyItemsizes : public ::testing::TestWithParam<mt_dtype> {
 protected:
  static constexpr int64_t kRows = 70, kCols = 300;
  void expect_copies(const TestTensor& source) const {
    for (const Shape& strides : {Shape{kCols, 1}, Shape{1, kRows}, Shape{2 * kCols, 2}}) {
      const TestTensor room = TestTensor::empty(GetParam(), {kRows * kCols * 2});
      const TestTensor got = room.as_strided({kRows, kCols}, strides);
      const TestTensor want = TestTensor::empty(GetParam(), {kRows, kCols});
      ASSERT_EQ(copy(got, source, 3), "");
      ASSERT_EQ(reference_copy(want, source), "");
      ASSERT_EQ(got.values<int>(), want.values<int>());
    }
  }
  TestTensor base() const {
    const int64_t n = kRows * kCols * 2;
    return tensor_of(GetParam(), {n}, small_values(n, GetParam()));
  }
};

TEST_P(CopyItemsizes, SourcesOfAnyStrides) {
  expect_copies(base().as_strided({kRows, kCols}, {kCols, 1}));
  expect_copies(base().as_strided({kRows, kCols}, {1, kRows}));
  expect_copies(base().as_strided({kRows, kCols}, {2 * kCols, 2}));
  expect_copies(base().as_strided({kRows, kCols}, {1, 2 * kRows}));
  expect_copies(base().as_strided({kRows, kCols}, {-kCols, -1}, kRows * kCols - 1));
}

TEST_P(CopyItemsizes, SourcesThatBroadcast) {
  expect_copies(base().as_strided({kCols}, {1}));
  expect_copies(base().as_strided({kRows, 1}, {1, 1}));
  expect_copies(base().as_strided({}, {}));
}

INSTANTIATE_TEST_SUITE_P(Bytes, CopyItemsizes,
                         ::testing::Values(sdk::dtype_of<uint8_t>, sdk::dtype_of<int16_t>,
                                           sdk::dtype_of<int32_t>, sdk::dtype_of<int64_t>),
                         dtype_case);

TEST(Copy, LargeContiguousAndTransposed) {
  const int64_t side = 1700;
  const mt_dtype dtype = sdk::dtype_of<int32_t>;
  TestTensor x = TestTensor::empty(dtype, {side, side});
  for (int64_t i = 0; i < side * side; ++i) x.view().data<int32_t>()[i] = static_cast<int32_t>(i);
  const TestTensor to = TestTensor::empty(dtype, {side, side});
  ASSERT_EQ(copy(to, x, 2), "");
  ASSERT_EQ(to.values<int>(), x.values<int>());
  ASSERT_EQ(copy(to, x.reversed(), 2), "");
  for (int64_t i = 0; i < side * side; i += 101) {
    ASSERT_EQ(to.view().data<int32_t>()[i], i % side * side + i / side);
  }
}

std::string fill(const TestTensor& to, const TestTensor& value) {
  mt_args_fill_ args{};
  args.self = to;
  args.value = value;
  return run_cpu("fill_", args, to.dtype(), 2);
}

class FillDtypes : public ::testing::TestWithParam<mt_dtype> {};

TEST_P(FillDtypes, SetExactlyTheElementsOfTheLayout) {
  for (const Shape& strides : {Shape{50, 1}, Shape{1, 20}, Shape{100, 2}}) {
    const TestTensor room = tensor_of(GetParam(), {2000}, std::vector<double>(2000, 0));
    const TestTensor to = room.as_strided({20, 50}, strides);
    ASSERT_EQ(fill(to, TestTensor::host<double>(1)), "");
    EXPECT_EQ(to.values<int>(), std::vector<int>(1000, 1));
    const auto all = room.values<int64_t>();
    EXPECT_EQ(std::accumulate(all.begin(), all.end(), int64_t{0}), 1000);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FillDtypes, ::testing::ValuesIn(kAllDtypes), dtype_case);

TEST(Fill, LargeUnalignedRangesUseNonTemporalStores) {
  const TestTensor large = TestTensor::empty(sdk::dtype_of<int16_t>, {5'000'003});
  const TestTensor part = large.as_strided({5'000'001}, {1}, 1);
  ASSERT_EQ(fill(part, TestTensor::host<int64_t>(0x1234)), "");
  EXPECT_EQ(part.values<int>(), std::vector<int>(5'000'001, 0x1234));
  EXPECT_NE(large.values<int>()[0], 0x1234);
}

}  // namespace
}  // namespace mytorch::testing
