// Pooling over windows of (N, C, H, W) or (C, H, W) planes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/reference/exact.h"
#include "backends/reference/kernels.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

struct Pair {
  int64_t h;
  int64_t w;
};

// Returns the numbers for h and w: from a list of two, from one for both, or `fallback` for an
// empty list.
Pair pair(const mt_int_list& list, Pair fallback) {
  if (list.size == 0) return fallback;
  return {list.data[0], list.data[list.size - 1]};
}

// A tensor as a list of planes, its last two dimensions.
struct Planes {
  int64_t count = 1;
  int64_t h;
  int64_t w;

  explicit Planes(const sdk::TensorView& tensor) : h(tensor.size(-2)), w(tensor.size(-1)) {
    for (int d = 0; d < tensor.ndim() - 2; ++d) count *= tensor.size(d);
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

// The window of one output element of average pooling.
struct AverageWindow {
  int64_t y0, y1, x0, x1;  // clipped to the plane
  int64_t divisor;

  template <class Args>
  AverageWindow(const Args& args, const Planes& in, int64_t y, int64_t x) {
    const Pair kernel = pair(args.kernel_size, {1, 1});
    const Pair stride = pair(args.stride, kernel);
    const Pair padding = pair(args.padding, {0, 0});
    y0 = y * stride.h - padding.h;
    x0 = x * stride.w - padding.w;
    // With ceil_mode the last window may extend beyond the padding; that part does not count.
    y1 = std::min(y0 + kernel.h, in.h + padding.h);
    x1 = std::min(x0 + kernel.w, in.w + padding.w);
    const int64_t padded = (y1 - y0) * (x1 - x0);
    y0 = std::max<int64_t>(y0, 0);
    x0 = std::max<int64_t>(x0, 0);
    y1 = std::min(y1, in.h);
    x1 = std::min(x1, in.w);
    divisor = args.divisor_override.present != 0 ? args.divisor_override.value
              : args.count_include_pad != 0      ? padded
                                                 : (y1 - y0) * (x1 - x0);
  }
  bool empty() const { return y0 >= y1 || x0 >= x1; }
};

}  // namespace

void max_pool2d(mt_ctx& /*ctx*/, const mt_args_max_pool2d_with_indices& args) {
  const Planes in(args.self);
  const sdk::TensorView out_view = args.out != nullptr ? args.out : args.indices;
  if (!out_view) return;
  const Planes out(out_view);
  const Pair kernel = pair(args.kernel_size, {1, 1});
  const Pair stride = pair(args.stride, kernel);
  const Pair padding = pair(args.padding, {0, 0});
  const Pair dilation = pair(args.dilation, {1, 1});
  // Returns the first position of a window that does not precede the plane.
  const auto first = [](int64_t start, int64_t step) {
    return start >= 0 ? start : start + (-start + step - 1) / step * step;
  };
  visit_domain(args.header.compute, [&](auto tag) {
    using E = typename decltype(tag)::type;
    const std::vector<E> values = read_exact<E>(args.self, args.header.compute);
    const size_t n = static_cast<size_t>(out_view.numel());
    std::vector<E> best(n);
    std::vector<int64_t> indices(n);
    for_each_output(out, [&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
      const int64_t start_y = oy * stride.h - padding.h;
      const int64_t start_x = ox * stride.w - padding.w;
      const int64_t end_y = std::min(start_y + (kernel.h - 1) * dilation.h + 1, in.h);
      const int64_t end_x = std::min(start_x + (kernel.w - 1) * dilation.w + 1, in.w);
      best[i] = lowest<E>();
      indices[i] = first(start_y, dilation.h) * in.w + first(start_x, dilation.w);
      for (int64_t y = first(start_y, dilation.h); y < end_y; y += dilation.h) {
        for (int64_t x = first(start_x, dilation.w); x < end_x; x += dilation.w) {
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
    std::vector<E> result;
    result.reserve(sums.size());
    for (const Sum<E>& sum : sums) result.push_back(sum.value());
    write_exact(result, args.out);
  });
}

void avg_pool2d(mt_ctx& /*ctx*/, const mt_args_avg_pool2d& args) {
  const Planes in(args.self);
  visit_domain(args.header.compute, [&](auto tag) {
    using E = typename decltype(tag)::type;
    const std::vector<E> values = read_exact<E>(args.self, args.header.compute);
    std::vector<E> means(static_cast<size_t>(sdk::TensorView(args.out).numel()));
    for_each_output(Planes(args.out), [&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
      const AverageWindow window(args, in, oy, ox);
      if (window.empty()) return;
      Sum<E> sum;
      for (int64_t y = window.y0; y < window.y1; ++y) {
        for (int64_t x = window.x0; x < window.x1; ++x) sum.add(values[in.at(plane, y, x)]);
      }
      means[i] = sum.value() / static_cast<E>(window.divisor);
    });
    write_exact(means, args.out);
  });
}

void avg_pool2d_backward(mt_ctx& /*ctx*/, const mt_args_avg_pool2d_backward& args) {
  const Planes in(args.out);
  visit_domain(args.header.compute, [&](auto tag) {
    using E = typename decltype(tag)::type;
    const std::vector<E> grad = read_exact<E>(args.grad_output, args.header.compute);
    std::vector<Sum<E>> sums(static_cast<size_t>(sdk::TensorView(args.out).numel()));
    for_each_output(Planes(args.grad_output), [&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
      const AverageWindow window(args, in, oy, ox);
      if (window.empty()) return;
      const E share = grad[i] / static_cast<E>(window.divisor);
      for (int64_t y = window.y0; y < window.y1; ++y) {
        for (int64_t x = window.x0; x < window.x1; ++x) sums[in.at(plane, y, x)].add(share);
      }
    });
    std::vector<E> result;
    result.reserve(sums.size());
    for (const Sum<E>& sum : sums) result.push_back(sum.value());
    write_exact(result, args.out);
  });
}

}  // namespace mytorch::reference
