// copy_ and fill_: every pair of dtypes, layouts, sizes past the caches.
#include <gtest/gtest.h>

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

TEST(Copy, EveryPairOfDtypes) {
  for (const mt_dtype from : kAllDtypes) {
    for (const mt_dtype to : kAllDtypes) {
      const TestTensor source = tensor_of(from, {2000}, small_values(2000, from));
      for (const int64_t stride : {1, 2}) {
        const TestTensor x = source.as_strided({1000}, {stride});
        const TestTensor got = TestTensor::empty(to, {1000}), want = TestTensor::empty(to, {1000});
        ASSERT_EQ(copy(got, x), "");
        mt_args_copy_ args{};
        args.self = want;
        args.src = x;
        ASSERT_EQ(run_op("copy_", args, to), "");
        ASSERT_EQ(got.values<double>(), want.values<double>())
            << sdk::dtype_name(from) << " to " << sdk::dtype_name(to) << ", stride " << stride;
      }
    }
  }
}

TEST(Copy, Layouts) {
  for (const mt_dtype dtype : {sdk::dtype_of<uint8_t>, sdk::dtype_of<int16_t>,
                               sdk::dtype_of<int32_t>, sdk::dtype_of<int64_t>}) {
    const int64_t rows = 70, cols = 300;
    const TestTensor base =
        tensor_of(dtype, {rows * cols * 2}, small_values(rows * cols * 2, dtype));
    const TestTensor sources[] = {base.as_strided({rows, cols}, {cols, 1}),
                                  base.as_strided({rows, cols}, {1, rows}),
                                  base.as_strided({rows, cols}, {2 * cols, 2}),
                                  base.as_strided({rows, cols}, {1, 2 * rows}),
                                  base.as_strided({rows, cols}, {-cols, -1}, rows * cols - 1),
                                  base.as_strided({cols}, {1}),
                                  base.as_strided({rows, 1}, {1, 1}),
                                  base.as_strided({}, {})};
    for (const TestTensor& source : sources) {
      for (const Shape& strides : {Shape{cols, 1}, Shape{1, rows}, Shape{2 * cols, 2}}) {
        const TestTensor to = TestTensor::empty(dtype, {rows * cols * 2});
        const TestTensor got = to.as_strided({rows, cols}, strides);
        const TestTensor want = TestTensor::empty(dtype, {rows, cols});
        ASSERT_EQ(copy(got, source, 3), "");
        mt_args_copy_ args{};
        args.self = want;
        args.src = source;
        ASSERT_EQ(run_op("copy_", args, dtype), "");
        ASSERT_EQ(got.values<int>(), want.values<int>()) << sdk::dtype_name(dtype);
      }
    }
  }
}

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

TEST(Fill, DtypesAndLayouts) {
  for (const mt_dtype dtype : kAllDtypes) {
    for (const Shape& strides : {Shape{50, 1}, Shape{1, 20}, Shape{100, 2}}) {
      const TestTensor room = tensor_of(dtype, {2000}, std::vector<double>(2000, 0));
      const TestTensor to = room.as_strided({20, 50}, strides);
      mt_args_fill_ args{};
      const TestTensor value = TestTensor::host<double>(1);
      args.self = to;
      args.value = value;
      ASSERT_EQ(run_cpu("fill_", args, dtype, 2), "");
      ASSERT_EQ(to.values<int>(), std::vector<int>(1000, 1)) << sdk::dtype_name(dtype);
      int64_t sum = 0;
      for (const int64_t element : room.values<int64_t>()) sum += element;
      ASSERT_EQ(sum, 1000) << sdk::dtype_name(dtype);
    }
  }
  const TestTensor large = TestTensor::empty(sdk::dtype_of<int16_t>, {5'000'003});
  const TestTensor part = large.as_strided({5'000'001}, {1}, 1);
  mt_args_fill_ args{};
  const TestTensor value = TestTensor::host<int64_t>(0x1234);
  args.self = part;
  args.value = value;
  ASSERT_EQ(run_cpu("fill_", args, sdk::dtype_of<int16_t>, 2), "");
  EXPECT_EQ(part.values<int>(), std::vector<int>(5'000'001, 0x1234));
  EXPECT_NE(large.values<int>()[0], 0x1234);
}

}  // namespace
}  // namespace mytorch::testing
