// A tensor as a list of planes, its last two dimensions. A plane is accessed as contiguous rows of
// the compute type, in place or through a staging copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "mytorch/backend.h"

namespace mytorch::cpu {

using sdk::Window;

template <class W>
class Planes {
 public:
  explicit Planes(const sdk::TensorView& tensor)
      : tensor_(tensor), h(tensor.size(-2)), w(tensor.size(-1)) {
    const int64_t* const strides = tensor.get()->dl.strides;
    planes_.collapse(tensor.shape().first(static_cast<size_t>(tensor.ndim() - 2)),
                     std::span(&strides, 1), sdk::Order::kRowMajor);
    count = planes_.numel();
    direct_ =
        tensor.is<W>() && (w <= 1 || tensor.stride(-1) == 1) && (h <= 1 || tensor.stride(-2) == w);
  }

  int64_t size() const { return h * w; }
  // The elements of staging memory that a worker needs.
  int64_t staging() const { return direct_ ? 0 : size(); }

  // Returns a plane to read, in place or copied to `staging`.
  const W* read(int64_t plane, W* staging) const {
    if (direct_) return tensor_.data<W>() + offset(plane);
    copy(plane, staging, [](auto& element, W& staged) { staged = sdk::convert<W>(element); });
    return staging;
  }
  // Returns the plane to write results to; finish() completes the write.
  W* write(int64_t plane, W* staging) const {
    return direct_ ? tensor_.data<W>() + offset(plane) : staging;
  }
  void finish(int64_t plane, W* staging) const {
    if (direct_) return;
    copy(plane, staging, [](auto& element, W& staged) {
      element = sdk::convert<std::remove_reference_t<decltype(element)>>(staged);
    });
  }

 private:
  int64_t offset(int64_t plane) const {
    int64_t at[1];
    planes_.offsets(plane, at);
    return at[0];
  }
  template <class F>
  void copy(int64_t plane, W* staging, F&& f) const {
    sdk::visit_dtype(tensor_.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* data = tensor_.data<T>() + offset(plane);
      for (int64_t y = 0; y < h; ++y) {
        for (int64_t x = 0; x < w; ++x) {
          f(data[y * tensor_.stride(-2) + x * tensor_.stride(-1)], staging[y * w + x]);
        }
      }
    });
  }

  sdk::TensorView tensor_;
  sdk::StridedLoop<1> planes_;  // over the first elements
  bool direct_ = true;

 public:
  int64_t count = 1;
  int64_t h = 0;
  int64_t w = 0;
};

// Vectors may read and write this many elements beyond the end of intermediate rows.
inline constexpr int64_t kRoom = 16;

// A row split by the stride of the windows: element x is element (x + padding) / stride of phase
// (x + padding) % stride. Tap k of all windows is then one contiguous piece, for any stride, with
// the padding around it.
class Phases {
 public:
  Phases(const Window& window, int64_t size, int64_t outputs) : window_(window), size_(size) {
    if (outputs == 1) window_.stride = 1;  // it does not matter, and may be enormous
    const int64_t taps = (window_.kernel - 1) * window_.dilation / window_.stride + outputs;
    length_ = std::max(taps, (window_.padding + size - 1) / window_.stride + 1) + kRoom;
    sdk::checked_mul(window_.stride, length_);
  }

  int64_t size() const { return window_.stride * length_; }
  int64_t stride() const { return window_.stride; }
  int64_t row_size() const { return size_; }
  // Returns the position of tap k of the first window.
  int64_t tap(int64_t k) const { return place(k * window_.dilation); }
  // Returns the position of element x; elements at multiples of the stride after it follow.
  int64_t element(int64_t x) const { return place(x + window_.padding); }

  template <class W>
  void split(const W* row, W* apart) const {
    each(row, apart, [](const W& from, W& to) { to = from; });
  }
  template <class W>
  void join(const W* apart, W* row) const {
    each(row, apart, [](W& to, const W& from) { to = from; });
  }

 private:
  int64_t place(int64_t at) const { return at % window_.stride * length_ + at / window_.stride; }
  template <class Row, class Apart, class F>
  void each(Row* row, Apart* apart, F&& f) const {
    const int64_t stride = window_.stride;
    for (int64_t x = 0; x < std::min(stride, size_); ++x) {
      Apart* piece = apart + element(x);
      for (int64_t i = x; i < size_; i += stride) f(row[i], *piece++);
    }
  }

  Window window_;
  int64_t size_, length_;
};

// Returns `index`. Throws Error(MT_ERROR_VALUE) if it is outside of a plane of `size` elements.
inline int64_t checked_place(int64_t index, int64_t size) {
  if (static_cast<uint64_t>(index) >= static_cast<uint64_t>(size)) {
    throw sdk::Error(MT_ERROR_VALUE,
                     "[max_pool2d_with_indices_backward] index " + std::to_string(index) +
                         " is out of range for a plane of " + std::to_string(size) + " elements");
  }
  return index;
}

}  // namespace mytorch::cpu
