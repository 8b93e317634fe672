#include "windows.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/avg_pool2d_backward.h"
#include "mytorch/abi_ops/convolution.h"
#include "mytorch/abi_ops/convolution_backward_input.h"
#include "mytorch/abi_ops/convolution_backward_weight.h"
#include "mytorch/abi_ops/max_pool2d_with_indices.h"
#include "mytorch/abi_ops/max_pool2d_with_indices_backward.h"
#include "operand.h"

namespace npu {
namespace {

// ---- convolution -------------------------------------------------------------------------------
//
// A convolution is one sum over triples (element of `big`, element of `weight`, element of
// `small`). A direct convolution maps `big` to `small`, a transposed one `small` to `big`. Each
// kernel computes one of the three tensors from the other two.

using Spatial = std::array<int64_t, 3>;  // missing dimensions have size 1, stride 1, no padding

struct Geometry {
  // The shapes are `big` (N, groups * b, ...), `small` (N, groups * s, ...), `weight` (groups * s,
  // b, ...).
  template <class Args>
  Geometry(const Operand& big_operand, const Operand& weight, const Operand& small_operand,
           const Args& args)
      : batch(big_operand.size(0)),
        groups(args.groups),
        big_channels(weight.size(1)),
        small_channels(weight.size(0) / args.groups),
        big(sizes(big_operand)),
        small(sizes(small_operand)),
        kernel(sizes(weight)) {
    const size_t dims = weight.shape.size() - 2;
    stride = list(args.stride, dims, 1);
    padding = list(args.padding, dims, 0);
    dilation = list(args.dilation, dims, 1);
  }
  static Spatial sizes(const Operand& operand) {
    Spatial result = {1, 1, 1};
    const size_t dims = operand.shape.size() - 2;
    for (size_t d = 0; d < dims; ++d) result[3 - dims + d] = operand.shape[2 + d];
    return result;
  }
  static Spatial list(const mt_int_list& given, size_t dims, int64_t fill) {
    Spatial result = {fill, fill, fill};
    for (size_t d = 0; d < dims; ++d) result[3 - dims + d] = given.data[given.size == 1 ? 0 : d];
    return result;
  }
  static int64_t volume(const Spatial& s) { return s[0] * s[1] * s[2]; }

  int64_t batch, groups, big_channels, small_channels;
  Spatial big, small, kernel, stride, padding, dilation;
};

// Calls f(big, weight, small) with the offsets of each term's elements.
template <class F>
void for_each_term(const Geometry& g, F&& f) {
  Spatial s, k, b;
  const auto inside = [&](size_t d) {
    b[d] = s[d] * g.stride[d] - g.padding[d] + k[d] * g.dilation[d];
    return b[d] >= 0 && b[d] < g.big[d];
  };
  const auto place = [](const Spatial& at, const Spatial& size) {
    return (at[0] * size[1] + at[1]) * size[2] + at[2];
  };
  const auto each = [](int64_t& i, int64_t size, auto&& body) {
    for (i = 0; i < size; ++i) body();
  };
  int64_t n, group, sc, bc;
  each(n, g.batch, [&] {
    each(group, g.groups, [&] {
      each(sc, g.small_channels, [&] {
        each(bc, g.big_channels, [&] {
          const int64_t small_channel = group * g.small_channels + sc;
          const int64_t b0 =
              ((n * g.groups + group) * g.big_channels + bc) * Geometry::volume(g.big);
          const int64_t s0 =
              (n * g.groups * g.small_channels + small_channel) * Geometry::volume(g.small);
          const int64_t w0 = (small_channel * g.big_channels + bc) * Geometry::volume(g.kernel);
          each(s[0], g.small[0], [&] {
            each(s[1], g.small[1], [&] {
              each(s[2], g.small[2], [&] {
                each(k[0], g.kernel[0], [&] {
                  if (!inside(0)) return;
                  each(k[1], g.kernel[1], [&] {
                    if (!inside(1)) return;
                    each(k[2], g.kernel[2], [&] {
                      if (!inside(2)) return;
                      f(static_cast<size_t>(b0 + place(b, g.big)),
                        static_cast<size_t>(w0 + place(k, g.kernel)),
                        static_cast<size_t>(s0 + place(s, g.small)));
                    });
                  });
                });
              });
            });
          });
        });
      });
    });
  });
}

enum class Target { kBig, kWeight, kSmall };

template <class Args>
void correlate(mt_ctx& ctx, Target target, const mt_tensor* big, const mt_tensor* weight,
               const mt_tensor* small, const mt_tensor* bias, const Args& args) {
  const Operand operands[] = {big, weight, small};
  const Geometry geometry(operands[0], operands[1], operands[2], args);
  launch(ctx, [=, b = operands[0], w = operands[1], s = operands[2], terms = Operand(bias)] {
    Operand out = target == Target::kBig ? b : target == Target::kWeight ? w : s;
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      std::vector<E> sums(static_cast<size_t>(out.numel()), E(0));
      const auto values = [&](const Operand& operand, Target role) {
        return role == target ? std::vector<E>() : read<E>(operand);
      };
      const std::vector<E> bv = values(b, Target::kBig);
      const std::vector<E> wv = values(w, Target::kWeight);
      const std::vector<E> sv = values(s, Target::kSmall);
      for_each_term(geometry, [&](size_t bi, size_t wi, size_t si) {
        E& sum = sums[target == Target::kBig ? bi : target == Target::kWeight ? wi : si];
        sum = plus(sum, target == Target::kBig      ? times(wv[wi], sv[si])
                        : target == Target::kWeight ? times(bv[bi], sv[si])
                                                    : times(bv[bi], wv[wi]));
      });
      if (terms.present && !sums.empty()) {
        const std::vector<E> each = read<E>(terms);
        const size_t plane = sums.size() / (each.size() * static_cast<size_t>(out.size(0)));
        for (size_t i = 0; i < sums.size(); ++i) {
          sums[i] = plus(sums[i], each[i / plane % each.size()]);
        }
      }
      write(sums, out);
    });
  });
}

void convolution(mt_ctx& ctx, const mt_args_convolution& args) {
  if (args.transposed != 0) {
    correlate(ctx, Target::kBig, args.out, args.weight, args.input, args.bias, args);
  } else {
    correlate(ctx, Target::kSmall, args.input, args.weight, args.out, args.bias, args);
  }
}

void convolution_input(mt_ctx& ctx, const mt_args_convolution_backward_input& args) {
  if (args.transposed != 0) {
    correlate(ctx, Target::kSmall, args.grad_output, args.weight, args.out, nullptr, args);
  } else {
    correlate(ctx, Target::kBig, args.out, args.weight, args.grad_output, nullptr, args);
  }
}

void convolution_weight(mt_ctx& ctx, const mt_args_convolution_backward_weight& args) {
  const bool transposed = args.transposed != 0;
  correlate(ctx, Target::kWeight, transposed ? args.grad_output : args.input, args.out,
            transposed ? args.input : args.grad_output, nullptr, args);
}

// ---- pooling over windows of planes ------------------------------------------------------------

struct Pair {
  int64_t h;
  int64_t w;
};
Pair pair(const mt_int_list& list, Pair otherwise) {
  return list.size == 0 ? otherwise : Pair{list.data[0], list.data[list.size - 1]};
}

struct Window {
  template <class Args>
  explicit Window(const Args& args)
      : kernel(pair(args.kernel_size, {1, 1})),
        stride(pair(args.stride, kernel)),
        padding(pair(args.padding, {0, 0})) {}
  Pair kernel, stride, padding;
  Pair dilation = {1, 1};
};

// A tensor viewed as (planes, h, w).
struct Planes {
  explicit Planes(const Operand& tensor) : h(tensor.size(-2)), w(tensor.size(-1)) {
    count = h * w == 0 ? 0 : tensor.numel() / (h * w);
  }
  size_t at(int64_t plane, int64_t y, int64_t x) const {
    return static_cast<size_t>((plane * h + y) * w + x);
  }
  // Calls f(plane, y, x, offset) for each element.
  template <class F>
  void for_each(F&& f) const {
    for (int64_t i = 0; i < count * h * w; ++i)
      f(i / (h * w), i / w % h, i % w, static_cast<size_t>(i));
  }
  int64_t count, h, w;
};

void max_pool(mt_ctx& ctx, const mt_args_max_pool2d_with_indices& args) {
  Window window(args);
  window.dilation = pair(args.dilation, {1, 1});
  launch(ctx, [window, from = Operand(args.self), out = Operand(args.out),
               indices = Operand(args.indices)]() mutable {
    const Operand& wanted = out.present ? out : indices;
    if (!wanted.present) return;
    const Planes in(from);
    // Returns the first position of a window that is not in the padding.
    const auto first = [](int64_t start, int64_t step) {
      return start >= 0 ? start : start + (-start + step - 1) / step * step;
    };
    visit_domain(from.dtype, [&](auto zero) {
      using E = decltype(zero);
      using Limits = std::numeric_limits<E>;
      const std::vector<E> values = read<E>(from);
      const auto n = static_cast<size_t>(wanted.numel());
      std::vector<E> best(n, Limits::has_infinity ? -Limits::infinity() : Limits::lowest());
      std::vector<int64_t> places(n);
      const auto& [kernel, stride, padding, dilation] = window;
      Planes(wanted).for_each([&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
        const int64_t y0 = first(oy * stride.h - padding.h, dilation.h);
        const int64_t x0 = first(ox * stride.w - padding.w, dilation.w);
        const int64_t y1 =
            std::min(oy * stride.h - padding.h + (kernel.h - 1) * dilation.h + 1, in.h);
        const int64_t x1 =
            std::min(ox * stride.w - padding.w + (kernel.w - 1) * dilation.w + 1, in.w);
        places[i] = y0 * in.w + x0;
        for (int64_t y = y0; y < y1; y += dilation.h) {
          for (int64_t x = x0; x < x1; x += dilation.w) {
            const E value = values[in.at(plane, y, x)];
            if (!(value > best[i]) && value == value) continue;
            best[i] = value;
            places[i] = y * in.w + x;
          }
        }
      });
      if (out.present) write(best, out);
      if (indices.present) write(places, indices);
    });
  });
}

void max_pool_gradient(mt_ctx& ctx, const mt_args_max_pool2d_with_indices_backward& args) {
  launch(ctx, [grad = Operand(args.grad_output), indices = Operand(args.indices),
               out = Operand(args.out)]() mutable {
    const Planes planes(out);
    const int64_t size = planes.h * planes.w;
    const std::vector<int64_t> places = read<int64_t>(indices);
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      const std::vector<E> values = read<E>(grad);
      std::vector<E> sums(static_cast<size_t>(out.numel()), E(0));
      Planes(grad).for_each([&](int64_t plane, int64_t, int64_t, size_t i) {
        if (places[i] < 0 || places[i] >= size) {
          throw sdk::Error(MT_ERROR_VALUE, "[max_pool2d_with_indices_backward] index " +
                                               std::to_string(places[i]) +
                                               " is out of range for a plane of " +
                                               std::to_string(size) + " elements");
        }
        E& sum = sums[static_cast<size_t>(plane * size + places[i])];
        sum = plus(sum, values[i]);
      });
      write(sums, out);
    });
  });
}

// The window of one output element of average pooling, clipped to its plane.
struct AverageWindow : Window {
  template <class Args>
  explicit AverageWindow(const Args& args)
      : Window(args), counts_padding(args.count_include_pad != 0), divisor(args.divisor_override) {}
  // Calls f(y, x, divisor) for each element of the window.
  template <class F>
  void visit(const Planes& in, int64_t oy, int64_t ox, F&& f) const {
    int64_t y0 = oy * stride.h - padding.h;
    int64_t x0 = ox * stride.w - padding.w;
    // With ceil_mode, the last window may extend beyond the padding; elements there do not count.
    int64_t y1 = std::min(y0 + kernel.h, in.h + padding.h);
    int64_t x1 = std::min(x0 + kernel.w, in.w + padding.w);
    const int64_t padded = (y1 - y0) * (x1 - x0);
    y0 = std::max<int64_t>(y0, 0);
    x0 = std::max<int64_t>(x0, 0);
    y1 = std::min(y1, in.h);
    x1 = std::min(x1, in.w);
    const int64_t by = divisor.present != 0 ? divisor.value
                       : counts_padding     ? padded
                                            : (y1 - y0) * (x1 - x0);
    for (int64_t y = y0; y < y1; ++y) {
      for (int64_t x = x0; x < x1; ++x) f(y, x, by);
    }
  }
  bool counts_padding;
  mt_optional_int divisor;
};

void avg_pool(mt_ctx& ctx, const mt_args_avg_pool2d& args) {
  launch(ctx, [window = AverageWindow(args), from = Operand(args.self),
               out = Operand(args.out)]() mutable {
    const Planes in(from);
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      const std::vector<E> values = read<E>(from);
      std::vector<E> means(static_cast<size_t>(out.numel()), E(0));
      Planes(out).for_each([&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
        int64_t divisor = 1;
        window.visit(in, oy, ox, [&](int64_t y, int64_t x, int64_t by) {
          means[i] = plus(means[i], values[in.at(plane, y, x)]);
          divisor = by;
        });
        means[i] /= static_cast<E>(divisor);
      });
      write(means, out);
    });
  });
}

void avg_pool_gradient(mt_ctx& ctx, const mt_args_avg_pool2d_backward& args) {
  launch(ctx, [window = AverageWindow(args), grad = Operand(args.grad_output),
               out = Operand(args.out)]() mutable {
    const Planes in(out);
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      const std::vector<E> values = read<E>(grad);
      std::vector<E> sums(static_cast<size_t>(out.numel()), E(0));
      Planes(grad).for_each([&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
        window.visit(in, oy, ox, [&](int64_t y, int64_t x, int64_t by) {
          E& sum = sums[in.at(plane, y, x)];
          sum = plus(sum, values[i] / static_cast<E>(by));
        });
      });
      write(sums, out);
    });
  });
}

}  // namespace

void add_window_kernels(std::vector<mt_kernel_entry>& list) {
  constexpr uint32_t kAny = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;
  list.push_back(sdk::kernel<&convolution>("chip", kAny));
  list.push_back(sdk::kernel<&convolution_input>("chip", kAny));
  list.push_back(sdk::kernel<&convolution_weight>("chip", kAny));
  list.push_back(sdk::kernel<&max_pool>("chip", kAny));
  list.push_back(sdk::kernel<&max_pool_gradient>("chip", kAny));
  list.push_back(sdk::kernel<&avg_pool>("chip", kAny));
  list.push_back(sdk::kernel<&avg_pool_gradient>("chip", kAny));
}

}  // namespace npu
