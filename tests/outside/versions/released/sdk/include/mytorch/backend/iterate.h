// Walking several strided operands of one shape together: dimensions that lie in memory as one are
// joined, then an odometer over the outer ones calls back with runs along the innermost.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::sdk {
inline namespace v1 {

inline constexpr int kMaxDims = 64;

inline void check_ndim(size_t ndim) {
  if (ndim > kMaxDims) {
    throw Error(MT_ERROR_UNSUPPORTED, "tensors of " + std::to_string(ndim) +
                                          " dimensions; at most " + std::to_string(kMaxDims) +
                                          " are supported");
  }
}

// The strides with which `tensor` is read as if it had `shape`, to which it broadcasts: shapes
// align at the right, and sizes of 1 get stride 0. `strides` has room for shape.size().
inline void broadcast_strides(const TensorView& tensor, std::span<const int64_t> shape,
                              int64_t* strides) {
  const int ndim = static_cast<int>(shape.size());
  const int missing = ndim - tensor.ndim();
  for (int d = 0; d < ndim; ++d) {
    const bool repeats = d < missing || (tensor.size(d - missing) == 1 && shape[d] != 1);
    strides[d] = repeats ? 0 : tensor.stride(d - missing);
  }
}

// How a StridedLoop orders its elements: as the shape says (a linear index is then the logical
// row-major index), or in whichever order the first operand lies in memory.
enum class Order { kRowMajor, kMemory };

// A loop over N operands. Offsets and strides are in elements.
template <int N>
class StridedLoop {
 public:
  // `strides[k]` points at shape.size() strides of operand k.
  StridedLoop(std::span<const int64_t> shape, const std::array<const int64_t*, N>& strides,
              Order order = Order::kMemory) {
    for (const int64_t s : shape) numel_ *= s;
    if (numel_ == 0) return;
    check_ndim(shape.size());
    const int dims = static_cast<int>(shape.size());
    std::array<int, kMaxDims> by;
    int kept = 0;
    for (int d = 0; d < dims; ++d) {
      if (shape[d] != 1) by[kept++] = d;
    }
    if (order == Order::kMemory) sort_by_memory(strides, by.data(), kept);
    for (int i = 0; i < kept; ++i) append(shape[by[i]], strides, by[i]);
  }

  int64_t numel() const { return numel_; }
  int ndim() const { return ndim_; }  // after joining; 0 for a single element
  std::span<const int64_t> shape() const { return {shape_.data(), static_cast<size_t>(ndim_)}; }
  int64_t stride(int operand, int dim) const { return strides_[operand][dim]; }
  int64_t inner_size() const { return ndim_ == 0 ? 1 : shape_[ndim_ - 1]; }
  // Between neighbours of a run.
  int64_t inner_stride(int operand) const { return ndim_ == 0 ? 0 : strides_[operand][ndim_ - 1]; }

  // Calls f(offsets, count) for the elements with linear index in [begin, end): `offsets`, a
  // std::array<int64_t, N>, says where each operand's run begins; element i of the run of operand k
  // lies at offsets[k] + i * inner_stride(k).
  template <class F>
  void for_each_run(int64_t begin, int64_t end, F&& f) const {
    if (begin >= end) return;
    std::array<int64_t, N> offsets{};
    if (ndim_ == 0) {
      f(offsets, int64_t{1});
      return;
    }
    std::array<int64_t, kMaxDims> index;
    int64_t rest = begin;
    for (int d = ndim_ - 1; d >= 0; --d) {
      index[d] = rest % shape_[d];
      rest /= shape_[d];
      for (int k = 0; k < N; ++k) offsets[k] += index[d] * strides_[k][d];
    }
    const int inner = ndim_ - 1;
    for (int64_t at = begin;;) {
      const int64_t count = std::min(shape_[inner] - index[inner], end - at);
      f(static_cast<const std::array<int64_t, N>&>(offsets), count);
      at += count;
      if (at >= end) return;
      // Back to the start of this run's row, then on to the next one.
      for (int k = 0; k < N; ++k) offsets[k] -= index[inner] * strides_[k][inner];
      index[inner] = 0;
      for (int d = inner - 1; d >= 0; --d) {
        for (int k = 0; k < N; ++k) offsets[k] += strides_[k][d];
        if (++index[d] < shape_[d]) break;
        index[d] = 0;
        for (int k = 0; k < N; ++k) offsets[k] -= shape_[d] * strides_[k][d];
      }
    }
  }

  // Calls f(offsets) for each element, in order.
  template <class F>
  void for_each(F&& f) const {
    for_each_run(0, numel_, [&](std::array<int64_t, N> offsets, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        f(static_cast<const std::array<int64_t, N>&>(offsets));
        for (int k = 0; k < N; ++k) offsets[k] += inner_stride(k);
      }
    });
  }

 private:
  static void sort_by_memory(const std::array<const int64_t*, N>& strides, int* by, int n) {
    // Insertion sort: few elements, mostly in order, and stable. A stride of 0 says nothing about
    // order, so the next operand decides.
    for (int i = 1; i < n; ++i) {
      for (int j = i; j > 0 && outside(strides, by[j], by[j - 1]); --j) std::swap(by[j], by[j - 1]);
    }
  }
  static bool outside(const std::array<const int64_t*, N>& strides, int a, int b) {
    for (int k = 0; k < N; ++k) {
      const int64_t x = strides[k][a] < 0 ? -strides[k][a] : strides[k][a];
      const int64_t y = strides[k][b] < 0 ? -strides[k][b] : strides[k][b];
      if (x != 0 && y != 0 && x != y) return x > y;
    }
    return false;
  }

  // Adds an inner dimension, joined to the one before where every operand allows it.
  void append(int64_t size, const std::array<const int64_t*, N>& strides, int from) {
    bool joins = ndim_ > 0;
    for (int k = 0; joins && k < N; ++k) {
      joins = strides_[k][ndim_ - 1] == strides[k][from] * size;
    }
    if (!joins) shape_[ndim_++] = 1;
    shape_[ndim_ - 1] *= size;
    for (int k = 0; k < N; ++k) strides_[k][ndim_ - 1] = strides[k][from];
  }

  int64_t numel_ = 1;
  int ndim_ = 0;
  // Only the first ndim_ entries are ever read; clearing the rest would cost more than small loops.
  std::array<int64_t, kMaxDims> shape_;
  std::array<std::array<int64_t, kMaxDims>, N> strides_;
};

// A loop over operands that all broadcast to `shape`, which outputs have already.
template <int N>
StridedLoop<N> make_loop(std::span<const int64_t> shape, const std::array<TensorView, N>& operands,
                         Order order = Order::kMemory) {
  check_ndim(shape.size());
  int64_t strides[N][kMaxDims];
  std::array<const int64_t*, N> pointers;
  for (int k = 0; k < N; ++k) {
    broadcast_strides(operands[k], shape, strides[k]);
    pointers[k] = strides[k];
  }
  return StridedLoop<N>(shape, pointers, order);
}

}  // namespace v1
}  // namespace mytorch::sdk
