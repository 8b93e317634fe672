// Tensors as multidimensional views. Of cuda::std::mdspan, which GCC 12 compiles, where the CUDA
// toolkit is installed; otherwise of the class below, which has the interface that is used.
#include "mytorch/mdspan.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "mytorch/ops/arange.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

#if __has_include(<cuda/std/mdspan>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <cuda/std/mdspan>
#pragma GCC diagnostic pop
#endif

namespace mytorch {
namespace {

using testing::expect_error;
using testing::values;
using Numbers = std::vector<double>;

// A view of two dimensions, of any strides.
template <class T, class Index, size_t... fixed>
struct View {
  struct extents_type {
    static constexpr size_t rank() { return 2; }
    static constexpr size_t static_extent(size_t d) {
      constexpr size_t extents[] = {fixed...};
      return extents[d];
    }
    extents_type(Index rows, Index columns) : sizes{rows, columns} {}
    std::array<Index, 2> sizes;
  };
  struct mapping_type {
    mapping_type(const extents_type& given, const std::array<Index, 2>& strides)
        : extents(given), steps(strides) {}
    const std::array<Index, 2>& strides() const { return steps; }
    extents_type extents;
    std::array<Index, 2> steps;
  };
  using element_type = T;
  using index_type = Index;
  View(T* first, const mapping_type& given) : data(first), mapping(given) {}
  T& operator()(Index i, Index j) const {
    return data[i * mapping.steps[0] + j * mapping.steps[1]];
  }
  T* data;
  mapping_type mapping;
};
constexpr auto kAny = static_cast<size_t>(-1);
using Matrix = View<float, int64_t, kAny, kAny>;

TEST(Mdspan, SharesMemoryAndFollowsStrides) {
  const Tensor x = arange(6, kFloat32).reshape({2, 3});
  const auto t = as_mdspan<Matrix>(x.t());
  EXPECT_EQ(t.mapping.extents.sizes, (std::array<int64_t, 2>{3, 2}));
  EXPECT_EQ(t(2, 1), 5);
  t(0, 1) = 9;
  EXPECT_EQ(values(x), (Numbers{0, 1, 2, 9, 4, 5}));
  EXPECT_EQ(as_mdspan<Matrix>(zeros({0, 4})).mapping.extents.sizes[1], 4);
}

TEST(Mdspan, RefusesWhatTheViewCannotHold) {
  const Tensor x = ones({2, 3});
  expect_error(ErrorCode::kType, {"float32", "float64"},
               [&] { as_mdspan<View<double, int64_t, kAny, kAny>>(x); });
  expect_error(ErrorCode::kShape, {"(2, 3, 1)", "3"}, [&] { as_mdspan<Matrix>(x.unsqueeze(2)); });
  expect_error(ErrorCode::kShape, {"[as_mdspan] dimension 1", "(2, 3)", "static extent"},
               [&] { as_mdspan<View<float, int64_t, 2, 4>>(x); });
  as_mdspan<View<float, int64_t, 2, 3>>(x);
  expect_error(ErrorCode::kShape, {"dimension 0", "contiguous()"}, [] {
    as_mdspan<Matrix>(ones({3}).expand({2, 3}));
  });
  as_mdspan<Matrix>(ones({3}).expand({1, 3}));
  expect_error(ErrorCode::kShape, {"dimension 1", "index type"}, [] {
    as_mdspan<View<float, int8_t, kAny, kAny>>(ones({1, 200}));
  });
  static const float fixed[] = {1, 2};
  const Tensor read_only = from_blob(fixed, {1, 2});
  expect_error(ErrorCode::kValue, {}, [&] { as_mdspan<Matrix>(read_only); });
  EXPECT_EQ((as_mdspan<View<const float, int64_t, kAny, kAny>>(read_only)(0, 1)), 2);
}

#if __has_include(<cuda/std/mdspan>)
namespace cs = ::cuda::std;

TEST(Mdspan, OfOtherLibraries) {
  const Tensor x = arange(24, kFloat32).reshape({2, 3, 4});
  using Cube = cs::mdspan<float, cs::dextents<int, 3>, cs::layout_stride>;
  const Tensor permuted = x.permute({2, 0, 1});
  const auto any = as_mdspan<Cube>(permuted);
  EXPECT_EQ(any(3, 1, 2), permuted.index({3, 1, 2}).item<float>());
  EXPECT_EQ(any.extent(2), 3);

  using Rows = cs::mdspan<const float, cs::extents<int64_t, 2, cs::dynamic_extent, 4>>;
  const auto rows = as_mdspan<Rows>(x);
  EXPECT_EQ(rows(1, 2, 3), 23);
  expect_error(ErrorCode::kShape, {"layout_stride", "contiguous()"},
               [&] { as_mdspan<cs::mdspan<float, cs::dextents<int, 3>>>(permuted); });
  using Columns = cs::mdspan<float, cs::dextents<int, 2>, cs::layout_left>;
  EXPECT_EQ(as_mdspan<Columns>(x[1].t())(3, 2), 23);
  EXPECT_EQ((as_mdspan<cs::mdspan<float, cs::dextents<int, 0>>>(x.sum())()), 276);
}
#endif

}  // namespace
}  // namespace mytorch
