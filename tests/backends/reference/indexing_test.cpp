// gather, scatter, scatter_add, nonzero, cat, cumsum and sort.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "mytorch/abi_ops/cat.h"
#include "mytorch/abi_ops/cumsum.h"
#include "mytorch/abi_ops/gather.h"
#include "mytorch/abi_ops/nonzero.h"
#include "mytorch/abi_ops/scatter.h"
#include "mytorch/abi_ops/scatter_add.h"
#include "mytorch/abi_ops/sort.h"
#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {
namespace {

using V = std::vector<double>;
using I = std::vector<int64_t>;

std::string gather(const TestTensor& self, int64_t dim, const TestTensor& index,
                   const TestTensor& out) {
  mt_args_gather args{};
  args.self = self;
  args.dim = dim;
  args.index = index;
  args.out = out;
  return run_op("gather", args, self.dtype());
}

TEST(GatherTest, KnownValues) {
  const TestTensor self = TestTensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const TestTensor out = TestTensor::empty(self.dtype(), {2, 2});
  ASSERT_EQ(gather(self, 1, TestTensor::of<int64_t>({2, 2}, {2, 0, 1, 1}), out), "");
  EXPECT_EQ(out.values<double>(), (V{3, 1, 5, 5}));
  // Along dim 0, with int32 indices and transposed input and output. The index is smaller in the
  // other dimension.
  const TestTensor columns = TestTensor::empty(self.dtype(), {2, 1}).reversed();
  ASSERT_EQ(gather(self.reversed(), -2, TestTensor::of<int32_t>({1, 2}, {2, 0}), columns), "");
  EXPECT_EQ(columns.values<double>(), (V{3, 4}));
  const TestTensor none = TestTensor::empty(self.dtype(), {0, 3});
  EXPECT_EQ(gather(self, 0, TestTensor::empty(sdk::dtype_of<int64_t>, {0, 3}), none), "");
}

TEST(GatherTest, TakesZeroDimTensorsAndRejectsIndicesOutOfRange) {
  const TestTensor self = TestTensor::of<double>({}, {7});
  const TestTensor out = TestTensor::empty(self.dtype(), {});
  EXPECT_EQ(gather(self, 0, TestTensor::of<int64_t>({}, {0}), out), "");
  EXPECT_EQ(out.values<double>(), V{7});
  const TestTensor five = TestTensor::of<float>({5}, {1, 2, 3, 4, 5});
  const TestTensor one = TestTensor::empty(five.dtype(), {1});
  const std::string status = "status " + std::to_string(MT_ERROR_VALUE) + ": ";
  EXPECT_EQ(gather(five, 0, TestTensor::of<int64_t>({1}, {7}), one),
            status + "[gather] index 7 is out of range for dimension 0 of size 5");
  EXPECT_EQ(gather(five, 0, TestTensor::of<int64_t>({1}, {-1}), one),
            status + "[gather] index -1 is out of range for dimension 0 of size 5");
  EXPECT_EQ(gather(self, 0, TestTensor::of<int64_t>({}, {1}), out),
            status + "[gather] index 1 is out of range for dimension 0 of size 1");
}

TEST(ScatterTest, TheLastOfEqualIndicesWins) {
  const TestTensor self = TestTensor::of<int32_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  const TestTensor index = TestTensor::of<int64_t>({2, 2}, {1, 1, 0, 2});
  const TestTensor src = TestTensor::of<int32_t>({2, 4}, {10, 20, -1, -1, 30, 40, -1, -1});
  const TestTensor out = TestTensor::empty(self.dtype(), {2, 3});
  mt_args_scatter_src args{};
  args.self = self;
  args.dim = 1;
  args.index = index;
  args.src = src;
  args.out = out;
  ASSERT_EQ(run_op("scatter.src", args, self.dtype()), "");
  EXPECT_EQ(out.values<double>(), (V{1, 20, 3, 30, 5, 40}));
  args.out = self;  // in place
  ASSERT_EQ(run_op("scatter.src", args, self.dtype()), "");
  EXPECT_EQ(self.values<double>(), (V{1, 20, 3, 30, 5, 40}));
  const TestTensor wrong = TestTensor::of<int64_t>({2, 2}, {1, 1, 0, 3});
  args.index = wrong;
  EXPECT_EQ(run_op("scatter.src", args, self.dtype()),
            "status " + std::to_string(MT_ERROR_VALUE) +
                ": [scatter] index 3 is out of range for dimension 1 of size 3");
}

TEST(ScatterTest, AddSumsDuplicatesAndRoundsOnce) {
  const TestTensor self = TestTensor::of<sdk::Half>({2}, {2048, 0});
  const TestTensor index = TestTensor::of<int64_t>({4}, {0, 0, 1, 0});
  const TestTensor src = TestTensor::of<sdk::Half>({4}, {1, 1, 5, 1});
  const TestTensor out = TestTensor::empty(self.dtype(), {2});
  mt_args_scatter_add args{};
  args.self = self;
  args.dim = -1;
  args.index = index;
  args.src = src;
  args.out = out;
  ASSERT_EQ(run_op("scatter_add", args, self.dtype()), "");
  EXPECT_EQ(out.values<double>(), (V{2052, 5}));  // 2051 is halfway between two halves
  const TestTensor wrong = TestTensor::of<int64_t>({4}, {0, 0, 2, 0});
  args.index = wrong;
  EXPECT_EQ(run_op("scatter_add", args, self.dtype()),
            "status " + std::to_string(MT_ERROR_VALUE) +
                ": [scatter_add] index 2 is out of range for dimension 0 of size 2");
}

I nonzero(const TestTensor& self, Shape expected_shape) {
  mt_args_nonzero args{};
  args.self = self;
  TestContext context;
  EXPECT_EQ(run_op("nonzero", args, self.dtype(), context), MT_OK);
  EXPECT_EQ(context.outputs.size(), 1u);
  const auto shape = context.outputs[0].view().shape();
  EXPECT_EQ(Shape(shape.begin(), shape.end()), expected_shape);
  return context.outputs[0].values<int64_t>();
}

TEST(NonzeroTest, GivesCoordinatesInRowMajorOrder) {
  const TestTensor self = TestTensor::of<float>({2, 3}, {0, NAN, -0.0, 4, 0, 6});
  EXPECT_EQ(nonzero(self, {3, 2}), (I{0, 1, 1, 0, 1, 2}));
  EXPECT_EQ(nonzero(self.reversed(), {3, 2}), (I{0, 1, 1, 0, 2, 1}));
  EXPECT_EQ(nonzero(TestTensor::of<bool>({}, {1}), {1, 0}), I{});
  EXPECT_EQ(nonzero(TestTensor::of<bool>({}, {0}), {0, 0}), I{});
  EXPECT_EQ(nonzero(TestTensor::empty(self.dtype(), {0, 4}), {0, 2}), I{});
}

TEST(CatTest, JoinsAnyDimensionConvertsAndSkipsEmptyTensors) {
  const TestTensor a = TestTensor::of<float>({2, 1}, {1, 2});
  const TestTensor b = TestTensor::of<int64_t>({2, 2}, {3, 4, 5, 6}).reversed();
  const TestTensor none = TestTensor::empty(sdk::dtype_of<float>, {0});
  const TestTensor out = TestTensor::empty(sdk::dtype_of<double>, {3, 2}).reversed();
  const mt_tensor* tensors[] = {a, none, b};
  mt_args_cat args{};
  args.tensors = {tensors, 3};
  args.dim = -1;
  args.out = out;
  ASSERT_EQ(run_op("cat", args, out.dtype()), "");
  EXPECT_EQ(out.values<double>(), (V{1, 3, 5, 2, 4, 6}));
  const TestTensor empties[] = {TestTensor::empty(sdk::dtype_of<float>, {2, 0}),
                                TestTensor::empty(sdk::dtype_of<float>, {3, 0})};
  const TestTensor nothing = TestTensor::empty(sdk::dtype_of<float>, {5, 0});
  const mt_tensor* pair[] = {empties[0], empties[1]};
  args.tensors = {pair, 2};
  args.dim = 0;
  args.out = nothing;
  EXPECT_EQ(run_op("cat", args, nothing.dtype()), "");
}

V cumsum(const TestTensor& self, int64_t dim, mt_dtype dtype) {
  const auto shape = self.view().shape();
  const TestTensor out = TestTensor::empty(dtype, Shape(shape.begin(), shape.end()));
  mt_args_cumsum args{};
  args.self = self;
  args.dim = dim;
  args.out = out;
  EXPECT_EQ(run_op("cumsum", args, dtype), "");
  return out.values<double>();
}

TEST(CumsumTest, KnownValues) {
  const TestTensor self = TestTensor::of<int8_t>({2, 3}, {100, 100, 3, 4, 5, 6});
  EXPECT_EQ(cumsum(self, 1, sdk::dtype_of<int64_t>), (V{100, 200, 203, 4, 9, 15}));
  EXPECT_EQ(cumsum(self, -2, sdk::dtype_of<int64_t>), (V{100, 100, 3, 104, 105, 9}));
  EXPECT_EQ(cumsum(self, 1, self.dtype()), (V{100, -56, -53, 4, 9, 15}));
  const V nan = cumsum(TestTensor::of<float>({3}, {1, NAN, 2}), 0, sdk::dtype_of<float>);
  EXPECT_EQ(nan[0], 1);
  EXPECT_TRUE(std::isnan(nan[1]) && std::isnan(nan[2]));
  EXPECT_EQ(cumsum(TestTensor::of<float>({}, {3}), 0, sdk::dtype_of<float>), V{3});
  EXPECT_EQ(cumsum(TestTensor::empty(self.dtype(), {0, 2}), 0, self.dtype()), V{});
}

struct Sorted {
  V values;
  I indices;
};

Sorted sort(const TestTensor& self, int64_t dim, bool descending) {
  const auto shape = self.view().shape();
  const TestTensor values = TestTensor::empty(self.dtype(), Shape(shape.begin(), shape.end()));
  const TestTensor indices =
      TestTensor::empty(sdk::dtype_of<int64_t>, Shape(shape.begin(), shape.end()));
  mt_args_sort_stable args{};
  args.self = self;
  args.dim = dim;
  args.descending = descending;
  args.values = values;
  args.indices = indices;
  EXPECT_EQ(run_op("sort.stable", args, self.dtype()), "");
  return {values.values<double>(), indices.values<int64_t>()};
}

TEST(SortTest, IsStableInBothDirectionsWithNaNLargest) {
  const double inf = std::numeric_limits<double>::infinity();
  const TestTensor self = TestTensor::of<float>({7}, {3, NAN, 1, 3, inf, NAN, 1});
  EXPECT_EQ(sort(self, 0, false).indices, (I{2, 6, 0, 3, 4, 1, 5}));
  EXPECT_EQ(sort(self, 0, true).indices, (I{1, 5, 4, 0, 3, 2, 6}));
  EXPECT_TRUE(std::isnan(sort(self, 0, true).values[1]));
  EXPECT_EQ(sort(self, 0, false).values[4], inf);
}

TEST(SortTest, SortsAlongADimension) {
  const TestTensor self = TestTensor::of<int64_t>({2, 3}, {5, 1, 3, 2, 9, 3});
  Sorted got = sort(self, 0, false);
  EXPECT_EQ(got.values, (V{2, 1, 3, 5, 9, 3}));
  EXPECT_EQ(got.indices, (I{1, 0, 0, 0, 1, 1}));
  got = sort(self.reversed(), 0, true);
  EXPECT_EQ(got.values, (V{5, 9, 3, 3, 1, 2}));
  EXPECT_EQ(got.indices, (I{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(sort(TestTensor::of<float>({}, {4}), -1, false).indices, I{0});
  EXPECT_EQ(sort(TestTensor::empty(self.dtype(), {3, 0}), 1, false).values, V{});
}

}  // namespace
}  // namespace mytorch::testing
