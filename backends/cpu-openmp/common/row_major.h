// Ranges of a tensor's elements in row-major order, as contiguous arrays of the compute type: in
// place if the tensor is such an array, else through a buffer.
#pragma once

#include <array>
#include <cstdint>

#include "backends/cpu-openmp/simd/convert.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {

// Calls f(element, value) for elements [first, first + n) of `data`, in the order of `loop`, and n
// consecutive values.
template <class T, class V, class F>
void pair_elements(const sdk::StridedLoop<1>& loop, T* data, int64_t first, int64_t n, V* values,
                   F&& f) {
  const int64_t stride = loop.inner_stride(0);
  loop.for_each_run(first, first + n, [&](const std::array<int64_t, 1>& at, int64_t count) {
    T* run = data + at[0];
    for (int64_t i = 0; i < count; ++i) f(run[i * stride], *values++);
  });
}

template <class W>
class RowMajor {
 public:
  explicit RowMajor(const sdk::TensorView& tensor)
      : tensor_(tensor),
        loop_(sdk::make_loop<1>(tensor.shape(), {tensor}, sdk::Order::kRowMajor)),
        direct_(tensor.is<W>() && tensor.is_contiguous()) {
    if (direct_ || loop_.inner_stride(0) != 1) return;
    load_ = simd::get_convert(tensor.dtype(), sdk::dtype_of<W>);
    store_ = simd::get_convert(sdk::dtype_of<W>, tensor.dtype());
  }

  bool direct() const { return direct_; }
  const W* read(int64_t first, int64_t n, W* buffer) const {
    if (direct_) return tensor_.data<W>() + first;
    if (load_ != nullptr) {
      loop_.for_each_run(first, first + n, [&, to = buffer](const auto& at, int64_t count) mutable {
        load_(address(at[0]), to, count);
        to += count;
      });
      return buffer;
    }
    visit(first, n, buffer, [](auto& element, W& staged) { staged = sdk::convert<W>(element); });
    return buffer;
  }
  // Returns the array to write results to; finish() completes the write.
  W* write(int64_t first, W* buffer) const { return direct_ ? tensor_.data<W>() + first : buffer; }
  void finish(int64_t first, int64_t n, W* buffer) const {
    if (!direct_) put(first, n, buffer);
  }
  void put(int64_t first, int64_t n, W* values) const {
    if (store_ != nullptr) {
      loop_.for_each_run(first, first + n,
                         [&, from = values](const auto& at, int64_t count) mutable {
                           store_(from, address(at[0]), count);
                           from += count;
                         });
      return;
    }
    visit(first, n, values, [](auto& element, W& staged) {
      element = sdk::convert<std::remove_reference_t<decltype(element)>>(staged);
    });
  }

 private:
  char* address(int64_t at) const { return tensor_.data<char>() + at * tensor_.itemsize(); }
  template <class F>
  void visit(int64_t first, int64_t n, W* buffer, F&& f) const {
    sdk::visit_dtype(tensor_.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      pair_elements(loop_, tensor_.data<T>(), first, n, buffer, f);
    });
  }

  sdk::TensorView tensor_;
  sdk::StridedLoop<1> loop_;
  bool direct_;
  // Convert runs of adjacent elements; NULL if elements are apart.
  simd::ConvertFn load_ = nullptr, store_ = nullptr;
};

// Returns all n elements of an optional parameter, or NULL if it is absent.
template <class W>
const W* parameter(mt_ctx& ctx, const mt_tensor* tensor, int64_t n) {
  if (tensor == nullptr) return nullptr;
  const RowMajor<W> elements{sdk::TensorView(tensor)};
  return elements.read(0, n, elements.direct() ? nullptr : sdk::scratch<W>(ctx, n));
}

}  // namespace mytorch::cpu
