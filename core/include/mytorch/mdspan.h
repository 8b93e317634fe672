// Tensors as multidimensional views: std::mdspan (C++23), Kokkos::mdspan or cuda::std::mdspan. This
// header needs none of them unless a program names one; mytorch itself does not use it.
//
//   using Matrix = std::mdspan<float, std::dextents<int64_t, 2>, std::layout_stride>;
//   auto m = as_mdspan<Matrix>(x);
//
// and, where the standard library has <mdspan>, as_mdspan<float, 2>(x) is the same.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <version>

#ifdef __cpp_lib_mdspan
#include <mdspan>
#endif

#include "mytorch/accessor.h"
#include "mytorch/tensor.h"

namespace mytorch {

namespace detail {
// Throws Error(kShape) with the dimension, shape, strides and the problem.
[[noreturn]] void fail_mdspan(const Tensor& tensor, size_t dim, const char* problem);
}  // namespace detail

// Returns a view over the memory of a CPU tensor, which must outlive it. Its layout may be of any
// strides, as layout_stride, or of fixed ones, as layout_right, whose strides the tensor must have.
// Throws Error(kType) if the tensor does not hold elements of the view; Error(kShape) if its number
// of dimensions, its strides or the static extents differ, or if it was expanded, since elements of
// a view are distinct; and Error(kValue) if the memory must not be written, which a view of const
// elements does not.
template <class Mdspan>
requires requires { typename Mdspan::extents_type; }
Mdspan as_mdspan(const Tensor& tensor) {
  using Extents = typename Mdspan::extents_type;
  using Index = typename Mdspan::index_type;
  using Mapping = typename Mdspan::mapping_type;
  constexpr size_t n = Extents::rank();
  const auto a = tensor.accessor<typename Mdspan::element_type, n>();
  std::array<Index, n> sizes{}, strides{};
  for (size_t d = 0; d < n; ++d) {
    const int64_t size = a.size(d);
    const int64_t stride = size > 1 ? a.stride(d) : std::max<int64_t>(a.stride(d), 1);
    const size_t fixed = Extents::static_extent(d);
    if (fixed != static_cast<size_t>(-1) && !std::cmp_equal(fixed, size)) {
      detail::fail_mdspan(tensor, d, "the view has another static extent");
    }
    if (stride < 1) {
      detail::fail_mdspan(tensor, d,
                          "the elements of a view are distinct: call contiguous() first");
    }
    if (!std::in_range<Index>(size) || !std::in_range<Index>(stride)) {
      detail::fail_mdspan(tensor, d, "the index type of the view is too small");
    }
    sizes[d] = static_cast<Index>(size);
    strides[d] = static_cast<Index>(stride);
  }
  const auto extents = std::apply([](auto... size) { return Extents(size...); }, sizes);
  if constexpr (requires(const Mapping& m) { Mapping(extents, m.strides()); }) {
    // The array that the view's library uses.
    std::decay_t<decltype(std::declval<const Mapping&>().strides())> steps{};
    for (size_t d = 0; d < n; ++d) steps[d] = strides[d];
    return Mdspan(a.data(), Mapping(extents, steps));
  } else {
    const Mapping mapping(extents);
    if constexpr (n > 0) {
      for (size_t d = 0; d < n; ++d) {
        if (sizes[d] > 1 && tensor.numel() > 0 && mapping.stride(d) != strides[d]) {
          detail::fail_mdspan(tensor, d,
                              "the view's layout has another stride: use layout_stride, or call "
                              "contiguous() for layout_right");
        }
      }
    }
    return Mdspan(a.data(), mapping);
  }
}

#ifdef __cpp_lib_mdspan
template <class T, size_t n>
auto as_mdspan(const Tensor& tensor) {
  return as_mdspan<std::mdspan<T, std::dextents<int64_t, n>, std::layout_stride>>(tensor);
}
#endif

}  // namespace mytorch
