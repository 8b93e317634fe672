// Max and average pooling. Planes are pooled along rows and then across them (separable.h);
// channels-last tensors are pooled window by window (channels_last.h).
#include <algorithm>
#include <limits>
#include <type_traits>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/common/move.h"
#include "backends/cpu-openmp/pooling/channels_last.h"
#include "backends/cpu-openmp/pooling/planes.h"
#include "backends/cpu-openmp/pooling/rows.h"
#include "backends/cpu-openmp/pooling/separable.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/avg_pool2d_backward.h"
#include "mytorch/abi_ops/max_pool2d_with_indices.h"
#include "mytorch/abi_ops/max_pool2d_with_indices_backward.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

int64_t grain(int64_t work) { return 1 + 8192 / std::max<int64_t>(work, 1); }

// Returns the windows of an operator. Throws Error(MT_ERROR_UNSUPPORTED) if they have too many taps
// to list.
template <class Args>
sdk::PlaneWindows windows_of(const Args& args, const TensorView& input, const TensorView& pooled) {
  const sdk::PlaneWindows windows = sdk::pooling_windows(args, input, pooled);
  if (std::max(windows.h.kernel, windows.w.kernel) > std::numeric_limits<int32_t>::max()) {
    throw sdk::Error(MT_ERROR_UNSUPPORTED, "[pooling] windows of 2^31 rows or columns and more");
  }
  return windows;
}

// ---- maxima

void max_pool2d(mt_ctx& ctx, const mt_args_max_pool2d_with_indices& args) {
  const TensorView some_out = args.out != nullptr ? args.out : args.indices;
  if (!some_out || some_out.numel() == 0) return;
  const TensorView self = args.self;
  const sdk::PlaneWindows windows = windows_of(args, self, some_out);
  if (self.size(-1) * self.size(-2) > std::numeric_limits<int32_t>::max()) {
    throw sdk::Error(MT_ERROR_UNSUPPORTED,
                     "[max_pool2d_with_indices] planes of 2^31 elements and more");
  }
  sdk::visit_dtype(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    const Window &wh = windows.h, &ww = windows.w;
    if constexpr (std::is_same_v<T, W>) {
      if (all_channels_last({self, args.out, args.indices})) {
        return max_channels_last<T>(ctx, self, wh, ww, args.out, args.indices);
      }
    }
    const Planes<W> in(self);
    const Planes<W> out(some_out.get() == args.out ? args.out : args.indices);
    const Planes<int64_t> indices(args.indices != nullptr ? TensorView(args.indices) : some_out);
    const Pool pool{wh, ww, in.h, in.w, out.h, out.w};
    const auto half = [](const Window& w, int64_t out, int64_t size) {
      return w.kernel == 2 && w.stride == 2 && w.padding == 0 && w.dilation == 1 && 2 * out <= size;
    };
    const PoolingKernels<W>& kernels = pooling_kernels<W>();
    const bool halves = half(wh, out.h, in.h) && half(ww, out.w, in.w);
    // Per worker: staged planes.
    const int64_t in_size = in.staging(), out_size = out.size();
    const int64_t words = (halves ? 0 : pool.max_words()) + out_size + (in_size + out_size);
    parallel_with_scratch<int64_t>(
        ctx, in.count, grain(out_size * (wh.kernel + ww.kernel)), words,
        [&](int64_t* part, int64_t begin, int64_t end) {
          int64_t* places = part;
          W* staged_in = reinterpret_cast<W*>(places + out_size);
          W* staged_out = staged_in + in_size;
          int64_t* memory = places + out_size + (in_size + out_size);
          for (int64_t plane = begin; plane < end; ++plane) {
            const W* x = in.read(plane, staged_in);
            W* best = args.out != nullptr ? out.write(plane, staged_out) : staged_out;
            int64_t* which = args.indices != nullptr ? indices.write(plane, places) : places;
            if (halves) {
              kernels.max_2x2_plane(x, in.w, in.size(), out.h, out.w, best, which);
            } else {
              kernels.max_plane(pool, x, best, which, memory);
            }
            if (args.out != nullptr) out.finish(plane, staged_out);
            if (args.indices != nullptr) indices.finish(plane, places);
          }
        });
  });
}

void max_pool2d_backward(mt_ctx& ctx, const mt_args_max_pool2d_with_indices_backward& args) {
  if (TensorView(args.out).numel() == 0) return;
  const IndexOperand operand(ctx, args.indices);
  sdk::visit_dtype(TensorView(args.out).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = std::conditional_t<std::is_same_v<T, bool>, uint8_t, sdk::Widened<T>>;
    if constexpr (std::is_same_v<T, W>) {
      if (all_channels_last({args.out, args.grad_output, operand.view()})) {
        return max_backward_channels_last<T>(ctx, args.grad_output, operand.view(), args.out);
      }
    }
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
              const int64_t index = checked_place(which[i], size);
              if constexpr (std::is_same_v<T, bool>) {
                to[index] |= g[i];
              } else {
                to[index] = sdk::wrapping_add(to[index], g[i]);
              }
            }
            out.finish(plane, staged_out);
          }
        });
  });
}

// ---- means

// The number of elements that a window counts: `given` or, if that is 0, the product of a number
// for the row and one for the column.
struct Divisor {
  int64_t given;
  bool include_padding;
};

template <class Args>
Divisor divisor_of(const Args& args) {
  return {args.divisor_override.present != 0 ? args.divisor_override.value : 0,
          args.count_include_pad != 0};
}

// Calls f(kernels, pool, from, to, counts, row_counts, memory) for each plane. `large` is the
// tensor before pooling, `pooled` the one after; a gradient goes from `pooled` to `large`. `words`
// returns the size of `memory` in words.
template <class Args, class F>
void average(mt_ctx& ctx, const Args& args, const TensorView& from, const TensorView& to,
             const TensorView& large, const TensorView& pooled, int64_t (Pool::*words)() const,
             F&& f) {
  if (to.numel() == 0) return;
  const sdk::PlaneWindows windows = windows_of(args, large, pooled);
  const Divisor divisor = divisor_of(args);
  const Pool pool{windows.h,      windows.w,       large.size(-2),
                  large.size(-1), pooled.size(-2), pooled.size(-1)};
  sdk::visit_floating(to.dtype(), [&](auto tag) {
    using W = sdk::Widened<typename decltype(tag)::type>;
    const Planes<W> in(from);
    const Planes<W> out(to);
    const PoolingKernels<W>& kernels = pooling_kernels<W>();
    const int64_t work = pool.oh * (windows.h.kernel * pool.w + windows.w.kernel * pool.ow);
    const int64_t own = in.staging() + out.staging() + pool.ow + pool.oh;
    parallel_with_scratch<int64_t>(
        ctx, out.count, grain(work), own + (pool.*words)(),
        [&](int64_t* part, int64_t begin, int64_t end) {
          W* counts = reinterpret_cast<W*>(part);
          W* row_counts = counts + pool.ow;
          W* staged_in = row_counts + pool.oh;
          W* staged_out = staged_in + in.staging();
          for (int64_t x = 0; x < pool.ow; ++x) {
            counts[x] = static_cast<W>(
                divisor.given != 0 ? 1 : pool.ww.count(x, pool.w, divisor.include_padding));
          }
          for (int64_t y = 0; y < pool.oh; ++y) {
            row_counts[y] = static_cast<W>(divisor.given != 0
                                               ? divisor.given
                                               : pool.wh.count(y, pool.h, divisor.include_padding));
          }
          for (int64_t plane = begin; plane < end; ++plane) {
            W* results = out.write(plane, staged_out);
            f(kernels, pool, in.read(plane, staged_in), results, counts, row_counts, part + own);
            out.finish(plane, staged_out);
          }
        });
  });
}

void avg_pool2d(mt_ctx& ctx, const mt_args_avg_pool2d& args) {
  average(ctx, args, args.self, args.out, args.self, args.out, &Pool::mean_words,
          [](const auto& kernels, const auto&... plane) { kernels.mean_plane(plane...); });
}

void avg_pool2d_backward(mt_ctx& ctx, const mt_args_avg_pool2d_backward& args) {
  average(ctx, args, args.grad_output, args.out, args.out, args.grad_output, &Pool::gradient_words,
          [](const auto& kernels, const auto&... plane) { kernels.mean_gradient_plane(plane...); });
}

}  // namespace

void register_pooling(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&max_pool2d>("rows", kTakes));
  kernels.push_back(sdk::kernel<&max_pool2d_backward>("planes", kTakes));
  kernels.push_back(sdk::kernel<&avg_pool2d>("rows", kTakes));
  kernels.push_back(sdk::kernel<&avg_pool2d_backward>("rows", kTakes));
}

}  // namespace mytorch::cpu
