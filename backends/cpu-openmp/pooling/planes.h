// Tensors as planes: the leading dimensions are a list, each plane is worked on as dense rows of
// the type that is computed in, staged where it is not that already.
#pragma once

#include <array>
#include <cstdint>

#include "mytorch/backend.h"

namespace mytorch::cpu {

template <class W>
class Planes {
 public:
  Planes() = default;
  explicit Planes(const sdk::TensorView& tensor)
      : tensor_(tensor), h(tensor.size(-2)), w(tensor.size(-1)) {
    for (int d = 0; d < tensor.ndim() - 2; ++d) count *= tensor.size(d);
    dense_ = tensor.is_dense();
    direct_ =
        tensor.is<W>() && (w <= 1 || tensor.stride(-1) == 1) && (h <= 1 || tensor.stride(-2) == w);
  }

  int64_t size() const { return h * w; }
  // Elements of staging memory that a worker needs.
  int64_t staging() const { return direct_ ? 0 : size(); }

  // A plane to read, in `staging` or in place.
  const W* read(int64_t plane, W* staging) const {
    if (direct_) return tensor_.data<W>() + offset(plane);
    copy(plane, staging, [](auto& element, W& staged) { staged = sdk::convert<W>(element); });
    return staging;
  }
  // Where a plane's results go before finish().
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
    if (dense_) return plane * size();  // without divisions
    int64_t at = 0;
    for (int d = tensor_.ndim() - 3; d >= 0; --d) {
      at += plane % tensor_.size(d) * tensor_.stride(d);
      plane /= tensor_.size(d);
    }
    return at;
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
  bool direct_ = true;
  bool dense_ = true;

 public:
  int64_t count = 1;
  int64_t h = 0;
  int64_t w = 0;
};

// Along one of the two dimensions.
struct Window {
  int64_t kernel, stride, padding, dilation;

  // The outputs x for which tap k lies inside: x * stride - padding + k * dilation in [0, size).
  struct Range {
    int64_t first, last;
  };
  int64_t place(int64_t x, int64_t k) const { return x * stride - padding + k * dilation; }
  Range range(int64_t k, int64_t out, int64_t size) const {
    const int64_t offset = k * dilation - padding;
    const int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    const int64_t last = size - offset <= 0 ? 0 : (size - offset + stride - 1) / stride;
    return {std::min(first, out), std::max(std::min(first, out), std::min(last, out))};
  }
};

// Two numbers, one for both, or none: `h` and `w`.
inline std::array<int64_t, 2> pair(const mt_int_list& list, std::array<int64_t, 2> absent) {
  if (list.size == 0) return absent;
  return {list.data[0], list.data[list.size - 1]};
}

}  // namespace mytorch::cpu
