// Pooling: one thread for each output element. The gradient of average pooling gathers from the
// windows that contain an element.
#include <cstdint>
#include <limits>
#include <type_traits>

#include "backends/cuda/common/divisor.h"
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/pooling/max_gradient.h"
#include "backends/cuda/pooling/planes.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/avg_pool2d_backward.h"
#include "mytorch/abi_ops/max_pool2d_with_indices.h"
#include "mytorch/backend/windows.h"

namespace mytorch::cuda {
namespace {

using sdk::PlaneWindows;
using sdk::TensorView;

// The coordinates of element i in memory order: channels first or last.
struct Order {
  bool wide, channels_last;
  int64_t c, h, w;
  Divisor by_c, by_h, by_w;

  explicit Order(const Planes& x)
      : wide(x.numel() >= int64_t{1} << 31),
        channels_last(x.c > 1 && x.sc == 1),
        c(x.c),
        h(x.h),
        w(x.w) {
    if (wide || x.numel() == 0) return;
    by_c = Divisor(static_cast<uint32_t>(c));
    by_h = Divisor(static_cast<uint32_t>(h));
    by_w = Divisor(static_cast<uint32_t>(w));
  }
#ifdef __CUDACC__
  __device__ __forceinline__ int64_t next(int64_t& rest, int64_t size, const Divisor& by) const {
    const int64_t outer =
        wide ? rest / size : static_cast<int64_t>(by.divide(static_cast<uint32_t>(rest)));
    const int64_t index = rest - outer * size;
    rest = outer;
    return index;
  }
  __device__ __forceinline__ void place(int64_t i, int64_t& n, int64_t& ic, int64_t& y,
                                        int64_t& x) const {
    if (channels_last) {
      ic = next(i, c, by_c);
      x = next(i, w, by_w);
      y = next(i, h, by_h);
    } else {
      x = next(i, w, by_w);
      y = next(i, h, by_h);
      ic = next(i, c, by_c);
    }
    n = i;
  }
#endif
};

// Positions and sizes in 32 bits, which large planes do not have.
struct Window32 {
  int stride, padding;
};
struct Planes32 {
  int c, h, w, sn, sc, sh, sw;

  explicit Planes32(const Planes& x)
      : c(static_cast<int>(x.c)),
        h(static_cast<int>(x.h)),
        w(static_cast<int>(x.w)),
        sn(static_cast<int>(x.sn)),
        sc(static_cast<int>(x.sc)),
        sh(static_cast<int>(x.sh)),
        sw(static_cast<int>(x.sw)) {}
};
// Whether offsets of all elements fit in 32 bits.
bool fits_32_bits(const Planes& x) {
  constexpr int64_t kMost = INT32_MAX;
  int64_t last = 0;
  const auto add = [&](int64_t size, int64_t stride) {
    if (size > kMost || stride < 0 || stride > kMost) return last = kMost + 1;
    return last += (size - 1) * stride;
  };
  add(x.n, x.sn), add(x.c, x.sc), add(x.h, x.sh), add(x.w, x.sw);
  return last <= kMost;
}

// Square windows of kTaps x kTaps adjacent elements, which are loaded together.
struct SmallWindows {
  Order order;
  Planes32 in, out;
  Window32 h, w;
  int numel;

  static bool fit(const PlaneWindows& windows, const Planes& in, const Planes& out) {
    const auto small = [](const sdk::Window& w, int64_t size) {
      constexpr int64_t kMost = 1 << 28;
      return w.dilation == 1 && w.stride * size < kMost && w.padding < kMost;
    };
    return (windows.h.kernel == 2 || windows.h.kernel == 3) &&
           windows.h.kernel == windows.w.kernel && fits_32_bits(in) && fits_32_bits(out) &&
           out.numel() < INT32_MAX / 2 && small(windows.h, out.h) && small(windows.w, out.w);
  }
  SmallWindows(const PlaneWindows& windows, const Planes& input, const Planes& output)
      : order(output), in(input), out(output), h(window(windows.h)), w(window(windows.w)) {
    numel = static_cast<int>(output.numel());
  }
  static Window32 window(const sdk::Window& w) {
    return {static_cast<int>(w.stride), static_cast<int>(w.padding)};
  }
#ifdef __CUDACC__
  // Loads the window of output element i, at (n, c, oy, ox). Calls f(value, y, x) for what lies in
  // the input, in order.
  template <int kTaps, class T, class F>
  __device__ __forceinline__ void each(const T* x, int n, int c, int oy, int ox, F&& f) const {
    const T* const plane = x + n * in.sn + c * in.sc;
    const int y0 = oy * h.stride - h.padding, x0 = ox * w.stride - w.padding;
    T values[kTaps][kTaps];
    const auto inside = [&](int y, int at) {
      return static_cast<unsigned>(y) < static_cast<unsigned>(in.h) &&
             static_cast<unsigned>(at) < static_cast<unsigned>(in.w);
    };
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        const int y = y0 + i, at = x0 + j;
        if (inside(y, at)) values[i][j] = plane[y * in.sh + at * in.sw];
      }
    }
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        const int y = y0 + i, at = x0 + j;
        if (inside(y, at)) f(values[i][j], y, at);
      }
    }
  }
  __device__ __forceinline__ void place(int i, int& n, int& c, int& y, int& x) const {
    int64_t at[4];
    order.place(i, at[0], at[1], at[2], at[3]);
    n = static_cast<int>(at[0]), c = static_cast<int>(at[1]);
    y = static_cast<int>(at[2]), x = static_cast<int>(at[3]);
  }
#endif
};

// Calls f with the constant number of taps.
template <class F>
void with_taps(const PlaneWindows& windows, F&& f) {
  if (windows.h.kernel == 2) return f(std::integral_constant<int, 2>());
  f(std::integral_constant<int, 3>());
}

// ---- max pooling

template <class T, int kTaps>
__global__ void __launch_bounds__(256)
    max_small_windows(SmallWindows windows, Planes32 places, const T* x, T* best_of,
                      int64_t* index_of) {
  using W = Wide<T>;
  using Limits = std::numeric_limits<W>;
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < windows.numel;
       i += step) {
    int n, c, oy, ox;
    windows.place(i, n, c, oy, ox);
    W best = Limits::has_infinity ? static_cast<W>(-Limits::infinity()) : Limits::lowest();
    // The first position inside of the input.
    int index = -1;
    windows.each<kTaps>(x, n, c, oy, ox, [&](T element, int y, int at) {
      const W value = widen(element);
      // The first maximum, but the last NaN, as in ATen.
      if (index < 0 || value > best || value != value) {
        best = value;
        index = y * windows.in.w + at;
      }
    });
    const int at =
        n * windows.out.sn + c * windows.out.sc + oy * windows.out.sh + ox * windows.out.sw;
    if (best_of != nullptr) best_of[at] = convert<T>(best);
    if (index_of != nullptr) {
      index_of[n * places.sn + c * places.sc + oy * places.sh + ox * places.sw] = index;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    max_windows(Order order, Planes in, Planes out, Planes places, PlaneWindows windows,
                int64_t numel, const T* x, T* best_of, int64_t* index_of) {
  using W = Wide<T>;
  using Limits = std::numeric_limits<W>;
  for (int64_t i = first_element(); i < numel; i += grid_step()) {
    int64_t n, c, oy, ox;
    order.place(i, n, c, oy, ox);
    const T* plane = x + in.plane(n, c);
    const int64_t y0 = windows.h.first(oy), y1 = windows.h.end(oy, in.h);
    const int64_t x0 = windows.w.first(ox), x1 = windows.w.end(ox, in.w);
    W best = Limits::has_infinity ? static_cast<W>(-Limits::infinity()) : Limits::lowest();
    int64_t index = y0 * in.w + x0;
    for (int64_t y = y0; y < y1; y += windows.h.dilation) {
      for (int64_t at = x0; at < x1; at += windows.w.dilation) {
        const W value = widen(plane[y * in.sh + at * in.sw]);
        // The first maximum, but the last NaN, as in ATen.
        if (value > best || value != value) {
          best = value;
          index = y * in.w + at;
        }
      }
    }
    if (best_of != nullptr) {
      best_of[out.plane(n, c) + oy * out.sh + ox * out.sw] = convert<T>(best);
    }
    if (index_of != nullptr) {
      index_of[places.plane(n, c) + oy * places.sh + ox * places.sw] = index;
    }
  }
}

void max_pool2d(mt_ctx& ctx, const mt_args_max_pool2d_with_indices& args) {
  const TensorView self = args.self;
  const TensorView out = args.out, indices = args.indices;
  const TensorView some = out ? out : indices;
  if (!some || some.numel() == 0) return;
  const Planes shape(some), places = indices ? Planes(indices) : shape;
  const PlaneWindows windows = sdk::pooling_windows(args, self, some);
  visit_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (out && SmallWindows::fit(windows, Planes(self), shape) && fits_32_bits(places)) {
      with_taps(windows, [&](auto taps) {
        launch(ctx, "max_windows", max_small_windows<T, taps()>, grid_for(ctx, shape.numel(), 256),
               SmallWindows(windows, Planes(self), shape), Planes32(places),
               static_cast<const T*>(self.raw()), out.data<T>(),
               indices ? indices.data<int64_t>() : nullptr);
      });
      return;
    }
    launch(ctx, "max_windows", max_windows<T>, grid_for(ctx, shape.numel(), 256), Order(shape),
           Planes(self), out ? Planes(out) : shape, places, windows, shape.numel(),
           static_cast<const T*>(self.raw()), out ? out.data<T>() : nullptr,
           indices ? indices.data<int64_t>() : nullptr);
  });
}

// ---- average pooling

// The divisor of a window's sum: the product of a number per row and one per column, or the given
// divisor.
struct Mean {
  PlaneWindows windows;
  int64_t given;
  bool padded;

#ifdef __CUDACC__
  template <class W>
  __device__ __forceinline__ W divisor(int64_t oy, int64_t ox, const Planes& large) const {
    if (given != 0) return static_cast<W>(given);
    return static_cast<W>(windows.h.count(oy, large.h, padded)) *
           static_cast<W>(windows.w.count(ox, large.w, padded));
  }
#endif
};

template <class Args>
Mean mean_of(const Args& args, const TensorView& large, const TensorView& pooled) {
  return {sdk::pooling_windows(args, large, pooled),
          args.divisor_override.present != 0 ? args.divisor_override.value : 0,
          args.count_include_pad != 0};
}

template <class T>
__global__ void __launch_bounds__(256)
    mean_windows(Order order, Planes in, Planes out, Mean mean, int64_t numel, const T* x, T* to) {
  using W = Wide<T>;
  for (int64_t i = first_element(); i < numel; i += grid_step()) {
    int64_t n, c, oy, ox;
    order.place(i, n, c, oy, ox);
    const T* plane = x + in.plane(n, c);
    const int64_t y1 = mean.windows.h.end(oy, in.h), x1 = mean.windows.w.end(ox, in.w);
    W sum = 0;
    for (int64_t y = mean.windows.h.first(oy); y < y1; ++y) {
      for (int64_t at = mean.windows.w.first(ox); at < x1; ++at) {
        sum += widen(plane[y * in.sh + at * in.sw]);
      }
    }
    // A window that contains only padding yields 0, even if it counts no positions.
    const W value = sum == 0 ? W(0) : sum / mean.divisor<W>(oy, ox, in);
    to[out.plane(n, c) + oy * out.sh + ox * out.sw] = convert<T>(value);
  }
}

template <class T, int kTaps>
__global__ void __launch_bounds__(256)
    mean_small_windows(SmallWindows windows, Mean mean, Planes large, const T* x, T* to) {
  using W = Wide<T>;
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < windows.numel;
       i += step) {
    int n, c, oy, ox;
    windows.place(i, n, c, oy, ox);
    W sum = 0;
    windows.each<kTaps>(x, n, c, oy, ox, [&](T element, int, int) { sum += widen(element); });
    const W value = sum == 0 ? W(0) : sum / mean.divisor<W>(oy, ox, large);
    to[n * windows.out.sn + c * windows.out.sc + oy * windows.out.sh + ox * windows.out.sw] =
        convert<T>(value);
  }
}

template <class T>
__global__ void __launch_bounds__(256) mean_gradient(Order order, Planes grad, Planes out,
                                                     Mean mean, int64_t numel, const T* g, T* to) {
  using W = Wide<T>;
  for (int64_t i = first_element(); i < numel; i += grid_step()) {
    int64_t n, c, y, x;
    order.place(i, n, c, y, x);
    const T* plane = g + grad.plane(n, c);
    const sdk::IndexRange rows = mean.windows.h.containing(y, grad.h);
    const sdk::IndexRange columns = mean.windows.w.containing(x, grad.w);
    W sum = 0;
    for (int64_t oy = rows.first; oy < rows.last; ++oy) {
      for (int64_t ox = columns.first; ox < columns.last; ++ox) {
        sum += widen(plane[oy * grad.sh + ox * grad.sw]) / mean.divisor<W>(oy, ox, out);
      }
    }
    to[out.plane(n, c) + y * out.sh + x * out.sw] = convert<T>(sum);
  }
}

void avg_pool2d(mt_ctx& ctx, const mt_args_avg_pool2d& args) {
  const TensorView out = args.out;
  if (out.numel() == 0) return;
  const Planes shape(out), in(args.self);
  const Mean mean = mean_of(args, args.self, out);
  visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (SmallWindows::fit(mean.windows, in, shape)) {
      with_taps(mean.windows, [&](auto taps) {
        launch(ctx, "mean_windows", mean_small_windows<T, taps()>,
               grid_for(ctx, shape.numel(), 256), SmallWindows(mean.windows, in, shape), mean, in,
               static_cast<const T*>(TensorView(args.self).raw()), out.data<T>());
      });
      return;
    }
    launch(ctx, "mean_windows", mean_windows<T>, grid_for(ctx, shape.numel(), 256), Order(shape),
           in, shape, mean, shape.numel(), static_cast<const T*>(TensorView(args.self).raw()),
           out.data<T>());
  });
}

void avg_pool2d_backward(mt_ctx& ctx, const mt_args_avg_pool2d_backward& args) {
  const TensorView out = args.out;
  if (out.numel() == 0) return;
  const Planes shape(out);
  visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "mean_gradient", mean_gradient<T>, grid_for(ctx, shape.numel(), 256), Order(shape),
           Planes(args.grad_output), shape, mean_of(args, out, args.grad_output), shape.numel(),
           static_cast<const T*>(TensorView(args.grad_output).raw()), out.data<T>());
  });
}

}  // namespace

void register_pooling(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&max_pool2d>("windows", kTakes));
  kernels.push_back(sdk::kernel<&avg_pool2d>("windows", kTakes));
  kernels.push_back(sdk::kernel<&avg_pool2d_backward>("gather", kTakes));
  register_max_pool_gradient(kernels);
}

}  // namespace mytorch::cuda
