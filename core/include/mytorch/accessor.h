// Element access to a tensor's memory for loops: Tensor::accessor<T, n>().
//
//   auto a = x.accessor<float, 2>();
//   for (int64_t i = 0; i < a.size(0); ++i) sum += a[i][i];
//
// Indices are checked in builds without NDEBUG, or with MYTORCH_CHECK_ACCESS.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mytorch/tensor.h"

#if defined(__CUDACC__)
#define MYTORCH_HOST_DEVICE __host__ __device__
#include <cassert>
#else
#define MYTORCH_HOST_DEVICE
#endif

namespace mytorch {

namespace detail {

#if !defined(NDEBUG) || defined(MYTORCH_CHECK_ACCESS)
inline constexpr bool kCheckAccess = true;
#else
inline constexpr bool kCheckAccess = false;
#endif

[[noreturn]] void fail_access(int64_t index, int64_t size, size_t dims_left);

template <bool checked>
MYTORCH_HOST_DEVICE inline void check_access([[maybe_unused]] int64_t index,
                                             [[maybe_unused]] int64_t size,
                                             [[maybe_unused]] size_t dims_left) {
  if constexpr (checked) {
#if defined(__CUDA_ARCH__)
    assert(index >= 0 && index < size);
#else
    if (index < 0 || index >= size) fail_access(index, size, dims_left);
#endif
  }
}

}  // namespace detail

// Refers to the sizes and strides of the tensor, which must outlive it.
template <class T, size_t n, bool checked = detail::kCheckAccess>
class TensorAccessor {
 public:
  MYTORCH_HOST_DEVICE TensorAccessor(T* data, const int64_t* sizes, const int64_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}

  // Returns T& if n is 1, else the accessor of n - 1 dimensions.
  MYTORCH_HOST_DEVICE decltype(auto) operator[](int64_t i) const {
    detail::check_access<checked>(i, sizes_[0], n);
    T* const element = data_ + i * strides_[0];
    if constexpr (n == 1) {
      return static_cast<T&>(*element);
    } else {
      return TensorAccessor<T, n - 1, checked>(element, sizes_ + 1, strides_ + 1);
    }
  }
  template <class... Indices>
  requires(sizeof...(Indices) == n) MYTORCH_HOST_DEVICE T& operator()(Indices... indices) const {
    return at(static_cast<int64_t>(indices)...);
  }
  MYTORCH_HOST_DEVICE int64_t size(size_t dim) const { return sizes_[dim]; }
  MYTORCH_HOST_DEVICE int64_t stride(size_t dim) const { return strides_[dim]; }
  MYTORCH_HOST_DEVICE T* data() const { return data_; }
  IntList sizes() const { return {sizes_, n}; }
  IntList strides() const { return {strides_, n}; }

 private:
  template <class... Rest>
  MYTORCH_HOST_DEVICE T& at(int64_t i, Rest... rest) const {
    if constexpr (sizeof...(Rest) == 0) {
      return (*this)[i];
    } else {
      return (*this)[i](rest...);
    }
  }

  T* data_;
  const int64_t* sizes_;
  const int64_t* strides_;
};

// Holds sizes and strides as `Index`. 32-bit indices are faster in device code.
template <class T, size_t n, class Index, bool checked = detail::kCheckAccess>
class PackedTensorAccessor {
 public:
  PackedTensorAccessor(T* data, const int64_t* sizes, const int64_t* strides) : data_(data) {
    for (size_t d = 0; d < n; ++d) {
      sizes_[d] = static_cast<Index>(sizes[d]);
      strides_[d] = static_cast<Index>(strides[d]);
    }
  }
  template <class... Indices>
  requires(sizeof...(Indices) == n) MYTORCH_HOST_DEVICE T& operator()(Indices... indices) const {
    const Index at[] = {static_cast<Index>(indices)...};
    Index offset = 0;
    for (size_t d = 0; d < n; ++d) {
      detail::check_access<checked>(at[d], sizes_[d], n - d);
      offset += at[d] * strides_[d];
    }
    return data_[offset];
  }
  // Returns T& if n is 1, else the accessor of n - 1 dimensions.
  MYTORCH_HOST_DEVICE decltype(auto) operator[](Index i) const {
    detail::check_access<checked>(i, sizes_[0], n);
    T* const element = data_ + i * strides_[0];
    if constexpr (n == 1) {
      return static_cast<T&>(*element);
    } else {
      return PackedTensorAccessor<T, n - 1, Index, checked>(element, *this);
    }
  }
  MYTORCH_HOST_DEVICE Index size(size_t dim) const { return sizes_[dim]; }
  MYTORCH_HOST_DEVICE Index stride(size_t dim) const { return strides_[dim]; }
  MYTORCH_HOST_DEVICE T* data() const { return data_; }

 private:
  template <class, size_t, class, bool>
  friend class PackedTensorAccessor;

  // Drops the first dimension of `outer`.
  MYTORCH_HOST_DEVICE PackedTensorAccessor(
      T* data, const PackedTensorAccessor<T, n + 1, Index, checked>& outer)
      : data_(data) {
    for (size_t d = 0; d < n; ++d) {
      sizes_[d] = outer.sizes_[d + 1];
      strides_[d] = outer.strides_[d + 1];
    }
  }

  T* data_;
  Index sizes_[n];
  Index strides_[n];
};

template <class T, size_t n>
auto Tensor::accessor() const {
  T* const data = checked_elements<T>(n, "accessor");
  return TensorAccessor<T, n, detail::kCheckAccess>(data, sizes().data(), strides().data());
}

template <class T, size_t n>
auto Tensor::packed_accessor64() const {
  T* const data = checked_elements<T>(n, "packed_accessor64");
  return PackedTensorAccessor<T, n, int64_t, detail::kCheckAccess>(data, sizes().data(),
                                                                   strides().data());
}

template <class T, size_t n>
auto Tensor::packed_accessor32() const {
  T* const data = checked_elements<T>(n, "packed_accessor32");
  return PackedTensorAccessor<T, n, int32_t, detail::kCheckAccess>(data, sizes().data(),
                                                                   strides().data());
}

}  // namespace mytorch
