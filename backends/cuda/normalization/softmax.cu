// softmax, log_softmax and their gradients. Contiguous rows are held in registers and read once;
// rows too long for that are read again from the L2 cache. Other lines are read two or three times,
// by one thread each if neighbouring lines are adjacent in memory, else by a block.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/online_softmax.cuh"
#include "backends/cuda/common/rows.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/log_softmax.h"
#include "mytorch/abi_ops/log_softmax_backward.h"
#include "mytorch/abi_ops/softmax.h"
#include "mytorch/abi_ops/softmax_backward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// ---- rows in registers

template <bool kLog, class T, int kWidth, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kPacks>, kRowBlocks<kPacks>)
    softmax_rows(Strided<2> rows, int64_t n, const T* x, T* y) {
  using W = Wide<T>;
  for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < rows.numel;
       r += static_cast<int64_t>(gridDim.x) * blockDim.y) {
    int64_t at[2];
    rows.offsets(r, at);
    OwnRow<T, kWidth, kPacks> row;
    row.load(x + at[1], n);
    W most = kLowest<W>;
    row.for_each(n, [&](W value) { most = Largest()(value, most); });
    most = row_combine<true>(most, Largest(), kLowest<W>);
    // Exponentials of the wide types are kept in place of the elements.
    constexpr bool kKeeps = !kLog && !is_half<T>;
    W sum = 0;
    if constexpr (kKeeps) {
      row.change(n, [&](W value) { return power<T>(value - most); });
      row.for_each(n, [&](W value) { sum += value; });
    } else {
      row.for_each(n, [&](W value) { sum += power<T>(value - most); });
    }
    sum = row_sum<true>(sum);
    const W last = kLog ? logarithm(sum) : W(1) / sum;
    row.store(y + at[0], n, [&](W value, int, int) {
      return kLog ? value - most - last : kKeeps ? value * last : power<T>(value - most) * last;
    });
  }
}

// The output is read when it is used, for softmax twice: the second time from a cache. Registers
// then hold rows twice as long.
template <bool kLog, class T, int kWidth, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kPacks>, kRowBlocks<kPacks>)
    gradient_rows(Strided<3> rows, int64_t n, const T* grad, const T* y, T* to) {
  using W = Wide<T>;
  using Row = OwnRow<T, kWidth, kPacks>;
  for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < rows.numel;
       r += static_cast<int64_t>(gridDim.x) * blockDim.y) {
    int64_t at[3];
    rows.offsets(r, at);
    const T* own = y + at[2];
    Row g;
    g.load(grad + at[1], n);
    W sum = 0;
    if constexpr (kLog) {
      g.for_each(n, [&](W value) { sum += value; });
    } else {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (Row::place(p) >= n) continue;
        const auto pack = *reinterpret_cast<const Pack<T, kWidth>*>(own + Row::place(p));
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum += widen(g.pack[p].at[k]) * widen(pack.at[k]);
      }
    }
    sum = row_sum(sum);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (Row::place(p) >= n) continue;
      const auto pack = *reinterpret_cast<const Pack<T, kWidth>*>(own + Row::place(p));
      Pack<T, kWidth> result;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const W value = widen(g.pack[p].at[k]), before = widen(pack.at[k]);
        result.at[k] = convert<T>(kLog ? value - power<T>(before) * sum : (value - sum) * before);
      }
      *reinterpret_cast<Pack<T, kWidth>*>(to + at[0] + Row::place(p)) = result;
    }
  }
}

// ---- rows that do not fit in registers

// Few blocks of many threads, so that the rows in progress fit in the L2 cache.
constexpr int kLongThreads = 1024;

// Rows are read twice, the second time from the L2 cache.
template <bool kLog, class T>
__global__ void __launch_bounds__(kLongThreads, 2)
    softmax_long(Strided<2> rows, int64_t n, const T* x, T* y) {
  using W = Wide<T>;
  constexpr int kWidth = kPack<T>;
  using Elements = Pack<T, kWidth>;
  for (int64_t r = blockIdx.x; r < rows.numel; r += gridDim.x) {
    int64_t at[2];
    rows.offsets(r, at);
    const T* from = x + at[1];
    PowerSum<T> own;
    constexpr int kAhead = sizeof(T) == 8 ? 1 : 2;
    const int64_t step = int64_t{blockDim.x} * kWidth;
    for (int64_t k = threadIdx.x * kWidth; k < n; k += kAhead * step) {
      Elements packs[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        packs[u] = k + u * step < n ? *reinterpret_cast<const Elements*>(from + k + u * step)
                                    : lowest_pack<T, kWidth>();
      }
      own.push(packs);
    }
    const W most = row_combine(own.most, Largest(), kLowest<W>);
    own.rise(most);
    const W sum = row_sum(own.sum);
    const W last = kLog ? logarithm(sum) : W(1) / sum;
#pragma unroll 4
    for (int64_t k = threadIdx.x * kWidth; k < n; k += blockDim.x * kWidth) {
      Elements pack = load_streaming<T, kWidth>(from + k);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const W value = widen(pack.at[i]) - most;
        pack.at[i] = convert<T>(kLog ? value - last : power<T>(value) * last);
      }
      store_streaming<T, kWidth>(y + at[0] + k, pack);
    }
  }
}

template <bool kLog, class T>
__global__ void __launch_bounds__(kLongThreads, 1)
    gradient_long(Strided<3> rows, int64_t n, const T* grad, const T* y, T* to) {
  using W = Wide<T>;
  constexpr int kWidth = kPack<T>;
  using Elements = Pack<T, kWidth>;
  for (int64_t r = blockIdx.x; r < rows.numel; r += gridDim.x) {
    int64_t at[3];
    rows.offsets(r, at);
    W sum = 0;
#pragma unroll 4
    for (int64_t k = threadIdx.x * kWidth; k < n; k += blockDim.x * kWidth) {
      const Elements g = *reinterpret_cast<const Elements*>(grad + at[1] + k);
      Elements own{};
      if (!kLog) own = *reinterpret_cast<const Elements*>(y + at[2] + k);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        sum += kLog ? widen(g.at[i]) : widen(g.at[i]) * widen(own.at[i]);
      }
    }
    sum = row_sum(sum);
#pragma unroll 2
    for (int64_t k = threadIdx.x * kWidth; k < n; k += blockDim.x * kWidth) {
      Elements g = load_streaming<T, kWidth>(grad + at[1] + k);
      const Elements own = load_streaming<T, kWidth>(y + at[2] + k);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const W value = widen(g.at[i]), before = widen(own.at[i]);
        g.at[i] = convert<T>(kLog ? value - power<T>(before) * sum : (value - sum) * before);
      }
      store_streaming<T, kWidth>(to + at[0] + k, g);
    }
  }
}

// ---- any lines

// An input of type T or of any other type, read in the compute type.
template <class T>
struct Input {
  const void* data;
  uint32_t key;
  bool same;

  __device__ __forceinline__ Wide<T> operator[](int64_t at) const {
    return same ? widen(static_cast<const T*>(data)[at]) : load_any<Wide<T>>(data, at, key);
  }
};

// Each line is processed by one thread or by one block.
template <bool kLog, class T>
__global__ void softmax_lines(Lines<2> lines, bool by_threads, Input<T> x, T* y) {
  using W = Wide<T>;
  const int64_t n = lines.size[0];
  const int64_t first = by_threads ? 0 : threadIdx.x;
  const int64_t step = by_threads ? 1 : blockDim.x;
  const int64_t every = by_threads ? grid_step() : gridDim.x;
  for (int64_t line = by_threads ? first_element() : blockIdx.x; line < lines.loop.numel;
       line += every) {
    int64_t at[2];
    lines.loop.offsets(line, at);
    W most = kLowest<W>;
    for (int64_t k = first; k < n; k += step) most = Largest()(x[at[1] + k * lines.step[1]], most);
    if (!by_threads) most = row_combine(most, Largest(), kLowest<W>);
    W sum = 0;
    for (int64_t k = first; k < n; k += step) {
      sum += power<T>(x[at[1] + k * lines.step[1]] - most);
    }
    if (!by_threads) sum = row_sum(sum);
    const W last = kLog ? logarithm(sum) : W(1) / sum;
    for (int64_t k = first; k < n; k += step) {
      const W value = x[at[1] + k * lines.step[1]] - most;
      y[at[0] + k * lines.step[0]] = convert<T>(kLog ? value - last : power<T>(value) * last);
    }
  }
}

template <bool kLog, class T>
__global__ void gradient_lines(Lines<3> lines, bool by_threads, const T* grad, const T* y, T* to) {
  using W = Wide<T>;
  const int64_t n = lines.size[0];
  const int64_t first = by_threads ? 0 : threadIdx.x;
  const int64_t step = by_threads ? 1 : blockDim.x;
  const int64_t every = by_threads ? grid_step() : gridDim.x;
  for (int64_t line = by_threads ? first_element() : blockIdx.x; line < lines.loop.numel;
       line += every) {
    int64_t at[3];
    lines.loop.offsets(line, at);
    W sum = 0;
    for (int64_t k = first; k < n; k += step) {
      const W g = widen(grad[at[1] + k * lines.step[1]]);
      sum += kLog ? g : g * widen(y[at[2] + k * lines.step[2]]);
    }
    if (!by_threads) sum = row_sum(sum);
    for (int64_t k = first; k < n; k += step) {
      const W g = widen(grad[at[1] + k * lines.step[1]]);
      const W own = widen(y[at[2] + k * lines.step[2]]);
      to[at[0] + k * lines.step[0]] = convert<T>(kLog ? g - power<T>(own) * sum : (g - sum) * own);
    }
  }
}

// ---- selection of the kernel

// Whether lines are contiguous rows, and whether these consist of whole packs of T.
template <int N>
bool are_rows(const Lines<N>& lines) {
  return std::all_of(lines.step, lines.step + N,
                     [&](int64_t step) { return step == 1 || lines.size[0] == 1; });
}
template <class T, int N>
bool in_packs(const Lines<N>& lines, std::initializer_list<const void*> operands) {
  bool whole = lines.size[0] % kPack<T> == 0;
  for (const void* data : operands) whole = whole && aligned(data);
  for (int d = 0; d < lines.loop.ndim; ++d) {
    for (int k = 0; k < N; ++k) whole = whole && lines.loop.stride[d][k] % kPack<T> == 0;
  }
  return whole;
}

Grid long_rows(int64_t count) {
  Grid grid;
  grid.threads = dim3(kLongThreads);
  grid.blocks = dim3(static_cast<unsigned>(std::min<int64_t>(count, 1 << 30)));
  return grid;
}

// Selects the grid for lines that are not rows. Returns whether each thread processes a line.
template <int N>
bool by_threads(const mt_ctx& ctx, const Lines<N>& lines, Grid& grid) {
  const bool side_by_side =
      lines.loop.ndim > 0 && std::abs(lines.loop.stride[0][0]) < std::abs(lines.step[0]);
  const bool threads =
      lines.size[0] <= 4 ||
      (side_by_side && lines.count() >= 32 * properties(ctx.device.index).multiprocessors);
  if (threads) {
    grid = grid_for(ctx, lines.count(), 128);
  } else {
    grid.threads = dim3(lines.size[0] >= 1024 ? 512 : 128);
    grid.blocks = dim3(static_cast<unsigned>(std::min<int64_t>(lines.count(), 1 << 20)));
  }
  return threads;
}

template <bool kLog, class Args>
void forward(mt_ctx& ctx, const Args& args) {
  const TensorView self = args.self, out = args.out;
  if (out.numel() == 0) return;
  const auto lines = Lines<2>(sdk::make_lines<2>({out, self}, args.dim));
  const int64_t n = lines.size[0];
  visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool same = sdk::same_dtype(self.dtype(), out.dtype());
    const T* x = static_cast<const T*>(self.raw());
    T* y = out.data<T>();
    if (same && are_rows(lines)) {
      const bool whole = in_packs<T>(lines, {self.raw(), out.raw()});
      const RowShape shape = row_shape<T>(lines.count(), n, whole);
      if (whole && shape.packs != kFewPacks) {
        launch(ctx, "softmax", softmax_long<kLog, T>, long_rows(lines.count()), lines.loop, n, x,
               y);
        return;
      }
      if (shape.width != 0) {
        with_row_shape<T>(shape, [&](auto width, auto packs) {
          if constexpr (width() == 1 || packs() == kFewPacks) {
            launch(ctx, "softmax", softmax_rows<kLog, T, width(), packs()>, shape.grid, lines.loop,
                   n, x, y);
          }
        });
        return;
      }
    }
    Grid grid;
    const bool threads = by_threads(ctx, lines, grid);
    launch(ctx, "softmax", softmax_lines<kLog, T>, grid, lines, threads,
           Input<T>{self.raw(), sdk::dtype_key(self.dtype()), same}, y);
  });
}

template <bool kLog, class Args>
void backward(mt_ctx& ctx, const Args& args) {
  const TensorView grad = args.grad_output, output = args.output, out = args.out;
  if (!sdk::same_dtype(grad.dtype(), out.dtype()) ||
      !sdk::same_dtype(output.dtype(), out.dtype()) || !sdk::is_floating(out.dtype())) {
    throw sdk::Declined{};
  }
  if (out.numel() == 0) return;
  const auto lines = Lines<3>(sdk::make_lines<3>({out, grad, output}, args.dim));
  const int64_t n = lines.size[0];
  visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* g = static_cast<const T*>(grad.raw());
    const T* y = static_cast<const T*>(output.raw());
    if (are_rows(lines)) {
      const bool whole = in_packs<T>(lines, {grad.raw(), output.raw(), out.raw()});
      const RowShape shape = row_shape<T>(lines.count(), n, whole);
      if (whole && shape.packs != kFewPacks) {
        launch(ctx, "softmax_backward", gradient_long<kLog, T>, long_rows(lines.count()),
               lines.loop, n, g, y, out.data<T>());
        return;
      }
      if (shape.width != 0) {
        with_row_shape<T>(shape, [&](auto width, auto packs) {
          if constexpr (width() == 1 || packs() == kFewPacks) {
            launch(ctx, "softmax_backward", gradient_rows<kLog, T, width(), packs()>, shape.grid,
                   lines.loop, n, g, y, out.data<T>());
          }
        });
        return;
      }
    }
    Grid grid;
    const bool threads = by_threads(ctx, lines, grid);
    launch(ctx, "softmax_backward", gradient_lines<kLog, T>, grid, lines, threads, g, y,
           out.data<T>());
  });
}

void softmax(mt_ctx& ctx, const mt_args_softmax_int& args) { forward<false>(ctx, args); }
void log_softmax(mt_ctx& ctx, const mt_args_log_softmax_int& args) { forward<true>(ctx, args); }
void softmax_backward(mt_ctx& ctx, const mt_args_softmax_backward& args) {
  backward<false>(ctx, args);
}
void log_softmax_backward(mt_ctx& ctx, const mt_args_log_softmax_backward& args) {
  backward<true>(ctx, args);
}

}  // namespace

void register_softmax(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&softmax>("rows", kTakes));
  kernels.push_back(sdk::kernel<&log_softmax>("rows", kTakes));
  kernels.push_back(sdk::kernel<&softmax_backward>("rows", kTakes));
  kernels.push_back(sdk::kernel<&log_softmax_backward>("rows", kTakes));
}

}  // namespace mytorch::cuda
