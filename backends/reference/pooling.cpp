// Pooling over windows of (N, C, H, W) or (C, H, W) planes.
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "backends/reference/exact.h"
#include "backends/reference/kernels.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"
#include "mytorch/backend/windows.h"

namespace mytorch::reference {
namespace {

// A tensor as a list of planes, its last two dimensions.
struct Planes {
  int64_t count = 1;
  int64_t h;
  int64_t w;

  explicit Planes(const sdk::TensorView& tensor) : h(tensor.size(-2)), w(tensor.size(-1)) {
    count = sdk::product(tensor.shape().first(static_cast<size_t>(tensor.ndim() - 2)));
  }
  size_t at(int64_t plane, int64_t y, int64_t x) const {
    return static_cast<size_t>((plane * h + y) * w + x);
  }
};

// Calls f(plane, y, x, i) for each element of the outputs, where i is its row-major index.
template <class F>
void for_each_output(const Planes& out, F&& f) {
  size_t i = 0;
  for (int64_t plane = 0; plane < out.count; ++plane) {
    for (int64_t y = 0; y < out.h; ++y) {
      for (int64_t x = 0; x < out.w; ++x) f(plane, y, x, i++);
    }
  }
}

template <class E>
E lowest() {
  using Limits = std::numeric_limits<E>;
  return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}

// Average pooling from planes of `large` to planes of `pooled`.
class AveragePooling {
 public:
  template <class Args>
  AveragePooling(const Args& args, const sdk::TensorView& large, const sdk::TensorView& pooled)
      : windows_(sdk::pooling_windows(args, large, pooled)),
        large_(large),
        include_padding_(args.count_include_pad != 0),
        divisor_(sdk::to_optional(args.divisor_override)) {}

  const Planes& large() const { return large_; }
  // Calls f(y, x) for each element of window (oy, ox).
  template <class F>
  void for_each_element(int64_t oy, int64_t ox, F&& f) const {
    const auto& [h, w] = windows_;
    for (int64_t y = h.first(oy); y < h.end(oy, large_.h); ++y) {
      for (int64_t x = w.first(ox); x < w.end(ox, large_.w); ++x) f(y, x);
    }
  }
  bool empty(int64_t oy, int64_t ox) const {
    const auto& [h, w] = windows_;
    return h.first(oy) >= h.end(oy, large_.h) || w.first(ox) >= w.end(ox, large_.w);
  }
  double divisor(int64_t oy, int64_t ox) const {
    if (divisor_) return static_cast<double>(*divisor_);
    return static_cast<double>(windows_.h.count(oy, large_.h, include_padding_)) *
           static_cast<double>(windows_.w.count(ox, large_.w, include_padding_));
  }

 private:
  sdk::PlaneWindows windows_;
  Planes large_;
  bool include_padding_;
  std::optional<int64_t> divisor_;
};

}  // namespace

void max_pool2d(mt_ctx& /*ctx*/, const mt_args_max_pool2d_with_indices& args) {
  const Planes in(args.self);
  const sdk::TensorView out_view = args.out != nullptr ? args.out : args.indices;
  if (!out_view) return;
  const Planes out(out_view);
  const sdk::PlaneWindows windows = sdk::pooling_windows(args, args.self, out_view);
  visit_domain(args.header.compute, [&](auto tag) {
    using E = typename decltype(tag)::type;
    const std::vector<E> values = read_exact<E>(args.self, args.header.compute);
    const size_t n = static_cast<size_t>(out_view.numel());
    std::vector<E> best(n);
    std::vector<int64_t> indices(n);
    for_each_output(out, [&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
      const auto& [h, w] = windows;
      best[i] = lowest<E>();
      indices[i] = h.first(oy) * in.w + w.first(ox);
      for (int64_t y = h.first(oy); y < h.end(oy, in.h); y += h.dilation) {
        for (int64_t x = w.first(ox); x < w.end(ox, in.w); x += w.dilation) {
          const E value = values[in.at(plane, y, x)];
          // The first of equal maxima, or the last NaN, as in ATen.
          if (value > best[i] || value != value) {
            best[i] = value;
            indices[i] = y * in.w + x;
          }
        }
      }
    });
    if (args.out != nullptr) write_exact(best, args.out);
    if (args.indices != nullptr) write_exact(indices, args.indices);
  });
}

void max_pool2d_backward(mt_ctx& /*ctx*/, const mt_args_max_pool2d_with_indices_backward& args) {
  if (sdk::TensorView(args.out).numel() == 0) return;
  const Planes grad(args.grad_output);
  const Planes out(args.out);
  const int64_t plane_size = out.h * out.w;
  const std::vector<int64_t> indices = read_index(args.indices);
  visit_domain(args.header.compute, [&](auto tag) {
    using E = typename decltype(tag)::type;
    const std::vector<E> values = read_exact<E>(args.grad_output, args.header.compute);
    std::vector<Sum<E>> sums(static_cast<size_t>(out.count * plane_size));
    for_each_output(grad, [&](int64_t plane, int64_t, int64_t, size_t i) {
      const int64_t index = indices[i];
      if (index < 0 || index >= plane_size) {
        throw sdk::Error(MT_ERROR_VALUE, "[max_pool2d_with_indices_backward] index " +
                                             std::to_string(index) +
                                             " is out of range for a plane of " +
                                             std::to_string(plane_size) + " elements");
      }
      sums[static_cast<size_t>(plane * plane_size + index)].add(values[i]);
    });
    write_exact(sums, args.out);
  });
}

void avg_pool2d(mt_ctx& /*ctx*/, const mt_args_avg_pool2d& args) {
  const AveragePooling pooling(args, args.self, args.out);
  visit_domain(args.header.compute, [&](auto tag) {
    using E = typename decltype(tag)::type;
    const std::vector<E> values = read_exact<E>(args.self, args.header.compute);
    std::vector<E> means(static_cast<size_t>(sdk::TensorView(args.out).numel()));
    for_each_output(Planes(args.out), [&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
      if (pooling.empty(oy, ox)) return;
      Sum<E> sum;
      pooling.for_each_element(
          oy, ox, [&](int64_t y, int64_t x) { sum.add(values[pooling.large().at(plane, y, x)]); });
      means[i] = sum.value() / static_cast<E>(pooling.divisor(oy, ox));
    });
    write_exact(means, args.out);
  });
}

void avg_pool2d_backward(mt_ctx& /*ctx*/, const mt_args_avg_pool2d_backward& args) {
  const AveragePooling pooling(args, args.out, args.grad_output);
  visit_domain(args.header.compute, [&](auto tag) {
    using E = typename decltype(tag)::type;
    const std::vector<E> grad = read_exact<E>(args.grad_output, args.header.compute);
    std::vector<Sum<E>> sums(static_cast<size_t>(sdk::TensorView(args.out).numel()));
    for_each_output(Planes(args.grad_output), [&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
      if (pooling.empty(oy, ox)) return;
      const E share = grad[i] / static_cast<E>(pooling.divisor(oy, ox));
      pooling.for_each_element(
          oy, ox, [&](int64_t y, int64_t x) { sums[pooling.large().at(plane, y, x)].add(share); });
    });
    write_exact(sums, args.out);
  });
}

}  // namespace mytorch::reference
