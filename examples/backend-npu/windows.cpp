#include "windows.h"

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
// A convolution is one sum over triples (element of `input`, element of `weight`, element of
// `output`), and each kernel computes one of the three tensors from the other two. A transposed
// convolution reads `output` and writes `input` (sdk::ConvolutionGeometry).

// Calls f(input, weight, output) with the offsets of each term's elements.
template <class F>
void for_each_term(const sdk::ConvolutionGeometry& g, F&& f) {
  sdk::Spatial x, k, y;  // positions in input, weight and output
  const auto inside = [&](size_t d) {
    x[d] = g.window(static_cast<int>(d)).place(y[d], k[d]);
    return x[d] >= 0 && x[d] < g.input[d];
  };
  const auto place = [](const sdk::Spatial& at, const sdk::Spatial& size) {
    return (at[0] * size[1] + at[1]) * size[2] + at[2];
  };
  const auto each = [](int64_t& i, int64_t size, auto&& body) {
    for (i = 0; i < size; ++i) body();
  };
  if (g.empty()) return;
  int64_t n, group, oc, ic;
  each(n, g.batch, [&] {
    each(group, g.groups, [&] {
      each(oc, g.out_channels, [&] {
        each(ic, g.in_channels, [&] {
          const int64_t out_channel = group * g.out_channels + oc;
          const int64_t x0 = ((n * g.groups + group) * g.in_channels + ic) * g.input_plane();
          const int64_t y0 = (n * g.groups * g.out_channels + out_channel) * g.output_plane();
          const int64_t w0 = (out_channel * g.in_channels + ic) * g.taps();
          each(y[0], g.output[0], [&] {
            each(y[1], g.output[1], [&] {
              each(y[2], g.output[2], [&] {
                each(k[0], g.kernel[0], [&] {
                  if (!inside(0)) return;
                  each(k[1], g.kernel[1], [&] {
                    if (!inside(1)) return;
                    each(k[2], g.kernel[2], [&] {
                      if (!inside(2)) return;
                      f(static_cast<size_t>(x0 + place(x, g.input)),
                        static_cast<size_t>(w0 + place(k, g.kernel)),
                        static_cast<size_t>(y0 + place(y, g.output)));
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

template <class Args>
void convolution(mt_ctx& ctx, const Args& args) {
  using sdk::Convolution;
  const Convolution call(args);
  launch(ctx, [target = call.computed, geometry = call.geometry, x = Operand(call.input.get()),
               w = Operand(call.weight.get()), y = Operand(call.output.get()),
               terms = Operand(call.bias.get())] {
    Operand out = target == Convolution::kInput ? x : target == Convolution::kWeight ? w : y;
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      std::vector<E> sums(static_cast<size_t>(out.numel()), E(0));
      const auto values = [&](const Operand& operand, Convolution::Operand role) {
        return role == target ? std::vector<E>() : read<E>(operand);
      };
      const std::vector<E> xv = values(x, Convolution::kInput);
      const std::vector<E> wv = values(w, Convolution::kWeight);
      const std::vector<E> yv = values(y, Convolution::kOutput);
      for_each_term(geometry, [&](size_t xi, size_t wi, size_t yi) {
        E& sum = sums[target == Convolution::kInput    ? xi
                      : target == Convolution::kWeight ? wi
                                                       : yi];
        sum = plus(sum, target == Convolution::kInput    ? times(wv[wi], yv[yi])
                        : target == Convolution::kWeight ? times(xv[xi], yv[yi])
                                                         : times(xv[xi], wv[wi]));
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

// ---- pooling over windows of planes ------------------------------------------------------------

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
  const mt_tensor* const pooled = args.out != nullptr ? args.out : args.indices;
  if (pooled == nullptr) return;
  launch(ctx, [windows = sdk::pooling_windows(args, args.self, pooled), from = Operand(args.self),
               out = Operand(args.out), indices = Operand(args.indices)]() mutable {
    const Operand& wanted = out.present ? out : indices;
    const Planes in(from);
    visit_domain(from.dtype, [&](auto zero) {
      using E = decltype(zero);
      using Limits = std::numeric_limits<E>;
      const std::vector<E> values = read<E>(from);
      const auto n = static_cast<size_t>(wanted.numel());
      std::vector<E> best(n, Limits::has_infinity ? -Limits::infinity() : Limits::lowest());
      std::vector<int64_t> places(n);
      Planes(wanted).for_each([&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
        const auto& [h, w] = windows;
        places[i] = h.first(oy) * in.w + w.first(ox);
        for (int64_t y = h.first(oy); y < h.end(oy, in.h); y += h.dilation) {
          for (int64_t x = w.first(ox); x < w.end(ox, in.w); x += w.dilation) {
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

// The windows of average pooling.
struct AverageWindows {
  template <class Args>
  AverageWindows(const Args& args, const mt_tensor* large, const mt_tensor* pooled)
      : windows(sdk::pooling_windows(args, large, pooled)),
        counts_padding(args.count_include_pad != 0),
        divisor(args.divisor_override) {}
  // Calls f(y, x, divisor) for each element of the window.
  template <class F>
  void visit(const Planes& in, int64_t oy, int64_t ox, F&& f) const {
    const auto& [h, w] = windows;
    const int64_t by = divisor.present != 0
                           ? divisor.value
                           : h.count(oy, in.h, counts_padding) * w.count(ox, in.w, counts_padding);
    for (int64_t y = h.first(oy); y < h.end(oy, in.h); ++y) {
      for (int64_t x = w.first(ox); x < w.end(ox, in.w); ++x) f(y, x, by);
    }
  }
  sdk::PlaneWindows windows;
  bool counts_padding;
  mt_optional_int divisor;
};

void avg_pool(mt_ctx& ctx, const mt_args_avg_pool2d& args) {
  launch(ctx, [windows = AverageWindows(args, args.self, args.out), from = Operand(args.self),
               out = Operand(args.out)]() mutable {
    const Planes in(from);
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      const std::vector<E> values = read<E>(from);
      std::vector<E> means(static_cast<size_t>(out.numel()), E(0));
      Planes(out).for_each([&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
        int64_t divisor = 1;
        windows.visit(in, oy, ox, [&](int64_t y, int64_t x, int64_t by) {
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
  launch(ctx, [windows = AverageWindows(args, args.out, args.grad_output),
               grad = Operand(args.grad_output), out = Operand(args.out)]() mutable {
    const Planes in(out);
    visit_domain(out.dtype, [&](auto zero) {
      using E = decltype(zero);
      const std::vector<E> values = read<E>(grad);
      std::vector<E> sums(static_cast<size_t>(out.numel()), E(0));
      Planes(grad).for_each([&](int64_t plane, int64_t oy, int64_t ox, size_t i) {
        windows.visit(in, oy, ox, [&](int64_t y, int64_t x, int64_t by) {
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
  list.push_back(sdk::kernel<&convolution<mt_args_convolution>>("chip", kAny));
  list.push_back(sdk::kernel<&convolution<mt_args_convolution_backward_input>>("chip", kAny));
  list.push_back(sdk::kernel<&convolution<mt_args_convolution_backward_weight>>("chip", kAny));
  list.push_back(sdk::kernel<&max_pool>("chip", kAny));
  list.push_back(sdk::kernel<&max_pool_gradient>("chip", kAny));
  list.push_back(sdk::kernel<&avg_pool>("chip", kAny));
  list.push_back(sdk::kernel<&avg_pool_gradient>("chip", kAny));
}

}  // namespace npu
