// Element access by accessors.
#include "mytorch/accessor.h"

#include <gtest/gtest.h>

#include "mytorch/ops/arange.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

using testing::expect_error;

TEST(Accessor, ReadsAndWritesByStrides) {
  const Tensor x = arange(6, kFloat32).reshape({2, 3}).t();  // (3, 2), not contiguous
  auto a = x.accessor<float, 2>();
  EXPECT_EQ(a.size(0), 3);
  EXPECT_EQ(a.stride(0), 1);
  EXPECT_EQ(a[2][1], 5);
  EXPECT_EQ(a(2, 1), 5);
  a[0][1] = 30;
  a(1, 0) = 10;
  EXPECT_EQ(x[0][1].item<float>(), 30);
  EXPECT_EQ(x[1][0].item<float>(), 10);
  const auto read = x.accessor<const float, 2>();
  static_assert(std::is_same_v<decltype(read[0][0]), const float&>);
  const auto row = a[1];
  EXPECT_EQ(row.sizes().vec(), (std::vector<int64_t>{2}));
}

TEST(Accessor, PackedHoldsItsSizes) {
  const Tensor x = arange(24, kInt32).reshape({2, 3, 4});
  const auto wide = x.packed_accessor64<int32_t, 3>();
  const auto narrow = x.packed_accessor32<int32_t, 3>();
  EXPECT_EQ(wide[1][2][3], 23);
  EXPECT_EQ(wide(1, 0, 2), 14);
  EXPECT_EQ(narrow(1, 2, 3), 23);
  EXPECT_EQ(narrow[0][1].size(0), 4);
}

TEST(Accessor, ChecksIndicesIfAsked) {
  const Tensor x = zeros({2, 3});
  const int64_t* const sizes = x.sizes().data();
  const int64_t* const strides = x.strides().data();
  const TensorAccessor<float, 2, true> a(x.data<float>(), sizes, strides);
  const PackedTensorAccessor<float, 2, int32_t, true> packed(x.data<float>(), sizes, strides);
  expect_error(ErrorCode::kValue, {"index 2", "size 2", "dimension -2"}, [&] { (void)a[2]; });
  expect_error(ErrorCode::kValue, {"index -1", "size 3"}, [&] { (void)a[0][-1]; });
  expect_error(ErrorCode::kValue, {"index 3", "size 3"}, [&] { (void)a(0, 3); });
  expect_error(ErrorCode::kValue, {"index 5", "dimension -2"}, [&] { (void)packed(5, 0); });
  expect_error(ErrorCode::kValue, {"index 3", "dimension -1"}, [&] { (void)packed[1][3]; });
}

TEST(Accessor, RefusesOtherTypesAndDimensions) {
  const Tensor x = zeros({2, 3});
  expect_error(ErrorCode::kType, {"[accessor]", "float32", "float64"},
               [&] { x.accessor<double, 2>(); });
  expect_error(ErrorCode::kShape, {"[accessor]", "(2, 3)", "2"}, [&] { x.accessor<float, 1>(); });
  const float memory[] = {1, 2};
  const Tensor fixed = from_blob(memory, {2});
  EXPECT_EQ((fixed.accessor<const float, 1>()[1]), 2);
  expect_error(ErrorCode::kValue, {"const"}, [&] { fixed.accessor<float, 1>(); });
}

}  // namespace
}  // namespace mytorch
