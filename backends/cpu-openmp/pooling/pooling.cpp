// A row of outputs at a time, one tap of the window after the other in the window's row-major
// order, so that the first of equal elements is found first and inner loops run along memory.
#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

#include "backends/cpu-openmp/indexing/move.h"
#include "backends/cpu-openmp/pooling/planes.h"
#include "backends/cpu-openmp/pooling/rows.h"
#include "backends/cpu-openmp/registry.h"
#include "backends/cpu-openmp/scan/lines.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/avg_pool2d_backward.h"
#include "mytorch/abi_ops/max_pool2d_with_indices.h"
#include "mytorch/abi_ops/max_pool2d_with_indices_backward.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

int64_t grain(int64_t work) { return 1 + 8192 / std::max<int64_t>(work, 1); }

template <class W>
constexpr W lowest() {
  using Limits = std::numeric_limits<W>;
  return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}

struct Windows {
  Window h, w;

  template <class Args>
  static Windows of(const Args& args, std::array<int64_t, 2> dilation) {
    const auto kernel = pair(args.kernel_size, {1, 1});
    const auto stride = pair(args.stride, kernel);
    const auto padding = pair(args.padding, {0, 0});
    return {{kernel[0], stride[0], padding[0], dilation[0]},
            {kernel[1], stride[1], padding[1], dilation[1]}};
  }
};

// ---- maxima

void max_pool2d(mt_ctx& ctx, const mt_args_max_pool2d_with_indices& args) {
  const Windows windows = Windows::of(args, pair(args.dilation, {1, 1}));
  const TensorView some_out = args.out != nullptr ? args.out : args.indices;
  if (!some_out || some_out.numel() == 0) return;
  const TensorView self = args.self;
  if (self.size(-1) * self.size(-2) > std::numeric_limits<int32_t>::max()) {
    throw sdk::Error(MT_ERROR_UNSUPPORTED,
                     "[max_pool2d_with_indices] planes of 2^31 elements and more");
  }
  sdk::visit_dtype(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    const Planes<W> in(self);
    const Planes<W> out(some_out.get() == args.out ? args.out : args.indices);
    const Planes<int64_t> indices(args.indices != nullptr ? TensorView(args.indices) : some_out);
    const int64_t oh = out.h, ow = out.w;
    const Window &wh = windows.h, &ww = windows.w;
    const auto first = [](int64_t start, int64_t step) {
      return start >= 0 ? start : start + (-start + step - 1) / step * step;
    };
    const auto half = [](const Window& w, int64_t out, int64_t size) {
      return w.kernel == 2 && w.stride == 2 && w.padding == 0 && w.dilation == 1 && 2 * out <= size;
    };
    const bool halves = half(wh, oh, in.h) && half(ww, ow, in.w);
    // Per worker: staged planes, then the row of places.
    const int64_t in_size = in.staging(), out_size = oh * ow;
    const int64_t words = (out_size + 1) / 2 + out_size + (in_size + out_size);
    parallel_with_scratch<int64_t>(
        ctx, in.count, grain(out_size * wh.kernel * ww.kernel), words,
        [&](int64_t* part, int64_t begin, int64_t end) {
          int64_t* places = part;
          int32_t* row_places = reinterpret_cast<int32_t*>(places + out_size);
          W* staged_in = reinterpret_cast<W*>(places + out_size + (out_size + 1) / 2);
          W* staged_out = staged_in + in_size;
          for (int64_t plane = begin; plane < end; ++plane) {
            const W* x = in.read(plane, staged_in);
            W* best = args.out != nullptr ? out.write(plane, staged_out) : staged_out;
            int64_t* which = args.indices != nullptr ? indices.write(plane, places) : places;
            if (halves) max_2x2_plane(x, in.w, in.size(), oh, ow, best, which);
            for (int64_t oy = 0; oy < oh && !halves; ++oy) {
              W* row = best + oy * ow;
              std::fill(row, row + ow, lowest<W>());
              const int64_t y0 = first(oy * wh.stride - wh.padding, wh.dilation);
              for (int64_t ox = 0; ox < ow; ++ox) {
                const int64_t x0 = first(ox * ww.stride - ww.padding, ww.dilation);
                row_places[ox] = static_cast<int32_t>(y0 * in.w + x0);
              }
              for (int64_t ky = 0; ky < wh.kernel; ++ky) {
                const int64_t y = wh.place(oy, ky);
                if (y < 0 || y >= in.h) continue;
                for (int64_t kx = 0; kx < ww.kernel; ++kx) {
                  const auto range = ww.range(kx, ow, in.w);
                  const int64_t at = y * in.w + ww.place(range.first, kx);
                  max_row(x + at, ww.stride, at, range.last - range.first, row + range.first,
                          row_places + range.first);
                }
              }
              std::copy(row_places, row_places + ow, which + oy * ow);
            }
            if (args.out != nullptr) out.finish(plane, staged_out);
            if (args.indices != nullptr) indices.finish(plane, places);
          }
        });
  });
}

void max_pool2d_backward(mt_ctx& ctx, const mt_args_max_pool2d_with_indices_backward& args) {
  const IndexOperand operand(ctx, args.indices);
  sdk::visit_dtype(TensorView(args.out).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = std::conditional_t<std::is_same_v<T, bool>, uint8_t, sdk::Widened<T>>;
    const Planes<W> grad(args.grad_output);
    const Planes<W> out(args.out);
    const Planes<int64_t> indices(operand.view());
    const int64_t size = out.size();
    const int64_t words = indices.staging() + grad.staging() + out.staging();
    parallel_with_scratch<int64_t>(
        ctx, out.count, grain(size), words, [&](int64_t* part, int64_t begin, int64_t end) {
          W* staged_grad = reinterpret_cast<W*>(part + indices.staging());
          W* staged_out = staged_grad + grad.staging();
          for (int64_t plane = begin; plane < end; ++plane) {
            const int64_t* which = indices.read(plane, part);
            const W* g = grad.read(plane, staged_grad);
            W* to = out.write(plane, staged_out);
            std::fill(to, to + size, W{});
            for (int64_t i = 0; i < grad.size(); ++i) {
              const int64_t index = which[i];
              if (static_cast<uint64_t>(index) >= static_cast<uint64_t>(size)) {
                throw sdk::Error(MT_ERROR_VALUE, "[max_pool2d_with_indices_backward] index " +
                                                     std::to_string(index) +
                                                     " is out of range for a plane of " +
                                                     std::to_string(size) + " elements");
              }
              if constexpr (std::is_same_v<T, bool>) {
                to[index] |= g[i];
              } else {
                to[index] = static_cast<W>(to[index] + g[i]);
              }
            }
            out.finish(plane, staged_out);
          }
        });
  });
}

// ---- means

// How many elements a window counts: the product of one number per row and one per column, unless
// it is given.
struct Divisor {
  int64_t given;
  bool include_padding;

  int64_t along(const Window& w, int64_t x, int64_t size) const {
    const int64_t begin = x * w.stride - w.padding;
    // With ceil_mode the last window may reach beyond the padding, which then does not count.
    const int64_t end = std::min(begin + w.kernel, size + w.padding);
    if (include_padding) return end - begin;
    return std::min(end, size) - std::max<int64_t>(begin, 0);
  }
};

template <class Args>
Divisor divisor_of(const Args& args) {
  return {args.divisor_override.present != 0 ? args.divisor_override.value : 0,
          args.count_include_pad != 0};
}

template <class Args, class F>
void average(mt_ctx& ctx, const Args& args, const TensorView& from, const TensorView& to,
             const TensorView& large, const TensorView& pooled, F&& plane_of) {
  const Windows windows = Windows::of(args, {1, 1});
  const Divisor divisor = divisor_of(args);
  if (to.numel() == 0) return;
  sdk::visit_floating(to.dtype(), [&](auto tag) {
    using W = sdk::Widened<typename decltype(tag)::type>;
    const Planes<W> in(from);
    const Planes<W> out(to);
    const int64_t h = large.size(-2), w = large.size(-1);
    const int64_t oh = pooled.size(-2), ow = pooled.size(-1);
    const int64_t work = oh * ow * windows.h.kernel * windows.w.kernel;
    parallel_with_scratch<W>(
        ctx, out.count, grain(work), in.staging() + out.staging() + 2 * ow,
        [&](W* part, int64_t begin, int64_t end) {
          W* counts = part;  // along a row
          W* row = counts + ow;
          W* staged_in = row + ow;
          W* staged_out = staged_in + in.staging();
          for (int64_t x = 0; x < ow; ++x) {
            counts[x] = static_cast<W>(divisor.given != 0 ? 1 : divisor.along(windows.w, x, w));
          }
          const auto count_of_row = [&](int64_t y) {
            return static_cast<W>(divisor.given != 0 ? divisor.given
                                                     : divisor.along(windows.h, y, h));
          };
          for (int64_t plane = begin; plane < end; ++plane) {
            const W* x = in.read(plane, staged_in);
            W* y = out.write(plane, staged_out);
            plane_of(windows, x, y, h, w, oh, ow, counts, count_of_row, row);
            out.finish(plane, staged_out);
          }
        });
  });
}

void avg_pool2d(mt_ctx& ctx, const mt_args_avg_pool2d& args) {
  average(ctx, args, args.self, args.out, args.self, args.out,
          [](const Windows& windows, const auto* x, auto* y, int64_t h, int64_t w, int64_t oh,
             int64_t ow, const auto* counts, auto&& count_of_row, auto* /*row*/) {
            using W = std::remove_reference_t<decltype(*y)>;
            for (int64_t oy = 0; oy < oh; ++oy) {
              W* sum = y + oy * ow;
              std::fill(sum, sum + ow, W{});
              for (int64_t ky = 0; ky < windows.h.kernel; ++ky) {
                const int64_t at = windows.h.place(oy, ky);
                if (at < 0 || at >= h) continue;
                for (int64_t kx = 0; kx < windows.w.kernel; ++kx) {
                  const auto range = windows.w.range(kx, ow, w);
                  add_row(x + at * w + windows.w.place(range.first, kx), windows.w.stride,
                          range.last - range.first, sum + range.first);
                }
              }
              const W count = count_of_row(oy);
              // A window of padding only is 0, also where nothing is counted.
              for (int64_t ox = 0; ox < ow; ++ox) {
                sum[ox] = sum[ox] == 0 ? W{} : sum[ox] / (count * counts[ox]);
              }
            }
          });
}

void avg_pool2d_backward(mt_ctx& ctx, const mt_args_avg_pool2d_backward& args) {
  average(ctx, args, args.grad_output, args.out, args.out, args.grad_output,
          [](const Windows& windows, const auto* x, auto* y, int64_t h, int64_t w, int64_t oh,
             int64_t ow, const auto* counts, auto&& count_of_row, auto* row) {
            using W = std::remove_reference_t<decltype(*y)>;
            std::fill(y, y + h * w, W{});
            for (int64_t oy = 0; oy < oh; ++oy) {
              const W count = count_of_row(oy);
              for (int64_t ox = 0; ox < ow; ++ox) row[ox] = x[oy * ow + ox] / (count * counts[ox]);
              for (int64_t ky = 0; ky < windows.h.kernel; ++ky) {
                const int64_t at = windows.h.place(oy, ky);
                if (at < 0 || at >= h) continue;
                for (int64_t kx = 0; kx < windows.w.kernel; ++kx) {
                  const auto range = windows.w.range(kx, ow, w);
                  W* to = y + at * w + windows.w.place(0, kx);
                  for (int64_t ox = range.first; ox < range.last; ++ox) {
                    to[ox * windows.w.stride] += row[ox];
                  }
                }
              }
            }
          });
}

}  // namespace

void register_pooling(Candidates& candidates) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  candidates.push_back(sdk::kernel<&max_pool2d>(
      "max_pool2d_with_indices", MT_HASH_max_pool2d_with_indices, "rows", 0, kTakes));
  candidates.push_back(sdk::kernel<&max_pool2d_backward>("max_pool2d_with_indices_backward",
                                                         MT_HASH_max_pool2d_with_indices_backward,
                                                         "planes", 0, kTakes));
  candidates.push_back(
      sdk::kernel<&avg_pool2d>("avg_pool2d", MT_HASH_avg_pool2d, "rows", 0, kTakes));
  candidates.push_back(sdk::kernel<&avg_pool2d_backward>(
      "avg_pool2d_backward", MT_HASH_avg_pool2d_backward, "rows", 0, kTakes));
}

}  // namespace mytorch::cpu
