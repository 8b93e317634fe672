// Batch normalization. A channel's elements are split into pieces, whose sums are added in order.
// Values are taken relative to the channel's first element, so that a large mean does not cost
// precision. Channels that are contiguous (NHWC) have kernels of their own
// (batch_norm_rows.cuh); for other strides, threads are assigned to channels if these are adjacent,
// else to the other dimensions, by packs of 16 bytes if possible.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/normalization/batch_norm_rows.cuh"
#include "backends/cuda/normalization/operands.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/batch_norm_training.h"
#include "mytorch/abi_ops/batch_norm_training_backward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kThreads = 256;

// Operands of shape (N, C, ...), split into channels and the other dimensions.
template <int N>
struct Channels {
  Strided<N> rest;
  int64_t count;       // channels
  int64_t stride[N];   // between channels
  int64_t length = 0;  // elements of a piece

  explicit Channels(const std::array<TensorView, N>& operands) {
    const sdk::Lines<N> lines = sdk::make_lines<N>(operands, 1);
    rest = Strided<N>(lines.loop);
    count = lines.size[0];
    std::copy(lines.step.begin(), lines.step.end(), stride);
  }

  // Makes each run of `width` elements of a channel one element of the loop. Returns false if an
  // operand has gaps in a run, or runs that are not aligned to 16 bytes.
  bool pack(int width, const std::array<TensorView, N>& operands) {
    if (rest.ndim == 0 || rest.size[0] % width != 0) return false;
    for (int k = 0; k < N; ++k) {
      if (rest.stride[0][k] != 1 || stride[k] % width != 0 || !aligned(operands[k].raw())) {
        return false;
      }
      for (int d = 1; d < rest.ndim; ++d) {
        if (rest.stride[d][k] % width != 0) return false;
      }
    }
    rest.size[0] /= width;
    for (int k = 0; k < N; ++k) rest.stride[0][k] = width;
    rest.finish();
    return true;
  }
#ifdef __CUDACC__
  __device__ __forceinline__ int64_t own() const {
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  }
  __device__ __forceinline__ int64_t begin() const { return blockIdx.y * length + threadIdx.y; }
  __device__ __forceinline__ int64_t end() const {
    const int64_t last = (int64_t{blockIdx.y} + 1) * length;
    return last < rest.numel ? last : rest.numel;
  }
#endif
};

// Assigns threads to channels and splits the other dimensions into pieces.
template <int N>
Grid grid_of(const mt_ctx& ctx, Channels<N>& channels) {
  Grid grid;
  const bool inner = channels.count > 1 && channels.stride[0] == 1;
  grid.threads = inner ? dim3(32, kThreads / 32) : dim3(1, kThreads);
  const int64_t across = (channels.count + grid.threads.x - 1) / grid.threads.x;
  const int64_t busy = 8 * properties(ctx.device.index).multiprocessors;
  const int64_t most = std::max<int64_t>(1, channels.rest.numel / (4 * grid.threads.y));
  const int64_t pieces =
      std::clamp<int64_t>((busy + across - 1) / across, 1, std::min<int64_t>(most, 65535));
  channels.length = (channels.rest.numel + pieces - 1) / pieces;
  grid.blocks = dim3(static_cast<unsigned>(across), static_cast<unsigned>(pieces));
  return grid;
}

// Calls f(width) with the number of elements of a pack as a constant: 16 bytes, or one element.
template <class T, int N, class F>
void with_packs(Channels<N>& channels,
                const std::array<TensorView, static_cast<size_t>(N)>& operands, F&& f) {
  if (channels.pack(kPack<T>, operands)) return f(std::integral_constant<int, kPack<T>>());
  f(std::integral_constant<int, 1>());
}

// Stores the block's sums of two numbers for each of its channels to `partial`. Additions are in a
// fixed order.
__device__ __forceinline__ void put_partial(int64_t channel, int64_t channels, double a, double b,
                                            double2* partial) {
  __shared__ double2 parts[kThreads];
  const int own = threadIdx.y * blockDim.x + threadIdx.x;
  parts[own] = make_double2(a, b);
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) {
      const double2 other = parts[own + half * blockDim.x];
      parts[own].x += other.x;
      parts[own].y += other.y;
    }
    __syncthreads();
  }
  if (threadIdx.y == 0 && channel < channels) {
    partial[blockIdx.y * channels + channel] = parts[own];
  }
}

// The kernels that follow have blocks of 32 channels; kShares threads add the pieces of each.
Grid finish_grid(int64_t channels) {
  return {dim3(static_cast<unsigned>((channels + 31) / 32)), dim3(32, kShares)};
}

// Returns the sums of a channel, in the threads with threadIdx.y == 0. All threads must call it.
__device__ __forceinline__ double2 sum_of_pieces(const double2* partial, int64_t channel,
                                                 int64_t channels, int pieces) {
  __shared__ double2 parts[kShares][32];
  double2 sum = make_double2(0, 0);
  if (channel < channels) {
#pragma unroll 4
    for (int p = threadIdx.y; p < pieces; p += kShares) {
      const double2 part = partial[p * channels + channel];
      sum.x += part.x;
      sum.y += part.y;
    }
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (int share = 1; threadIdx.y == 0 && share < kShares; ++share) {
    sum.x += parts[share][threadIdx.x].x;
    sum.y += parts[share][threadIdx.x].y;
  }
  return sum;
}

template <int kWidth, class T>
__device__ __forceinline__ Pack<T, kWidth> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}

// ---- forward

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    sum_squares(Channels<2> channels, const T* x, double2* partial) {
  using W = Wide<T>;
  const int64_t c = channels.own();
  W sum = 0, squares = 0;
  if (c < channels.count) {
    int64_t at[2];
    channels.rest.offsets(0, at);
    const W shift = widen(x[c * channels.stride[0] + at[0]]);
#pragma unroll 4
    for (int64_t j = channels.begin(); j < channels.end(); j += blockDim.y) {
      channels.rest.offsets(j, at);
      const auto pack = load_pack<kWidth>(x + c * channels.stride[0] + at[0]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const W value = widen(pack.at[k]) - shift;
        sum += value;
        squares += value * value;
      }
    }
  }
  put_partial(c, channels.count, static_cast<double>(sum), static_cast<double>(squares), partial);
}

// Computes means and variances, and from them the terms of apply(). `n` is the number of elements
// of each of `count` channels, `x` their first elements, `step` apart.
template <class T>
__global__ void __launch_bounds__(32 * kShares)
    finish_statistics(int64_t count, double n, int pieces, const T* x, int64_t step,
                      const double2* partial, PerChannel weight, PerChannel bias, double eps,
                      PerChannel means, PerChannel vars, Wide<T>* terms) {
  using W = Wide<T>;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const double2 sums = sum_of_pieces(partial, c, count, pieces);
  if (threadIdx.y != 0 || c >= count) return;
  const double shifted = sums.x / n;
  const double spread = sums.y / n - shifted * shifted;
  // keeps a NaN
  const W var = static_cast<W>(spread < 0 ? 0 : spread);
  const W mean = static_cast<W>(static_cast<double>(widen(x[c * step])) + shifted);
  means.put(c, mean);
  vars.put(c, var);
  terms[3 * c] = mean;
  terms[3 * c + 1] = weight.get<W>(c, W(1)) / sqrt(var + static_cast<W>(eps));
  terms[3 * c + 2] = bias.get<W>(c, W(0));
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    apply(Channels<2> channels, const T* x, const Wide<T>* terms, T* y) {
  const int64_t c = channels.own();
  if (c >= channels.count) return;
  const Wide<T> mean = terms[3 * c], scale = terms[3 * c + 1], shift = terms[3 * c + 2];
  for (int64_t j = channels.begin(); j < channels.end(); j += blockDim.y) {
    int64_t at[2];
    channels.rest.offsets(j, at);
    auto pack = load_pack<kWidth>(x + c * channels.stride[0] + at[0]);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      pack.at[k] = convert<T>((widen(pack.at[k]) - mean) * scale + shift);
    }
    *reinterpret_cast<Pack<T, kWidth>*>(y + c * channels.stride[1] + at[1]) = pack;
  }
}

// Returns whether two tensors of one shape have the same order of dimensions. The composite's
// result has the input's order; if the output was allocated otherwise, the composite must run.
bool same_order(const TensorView& a, const TensorView& b) {
  for (int d = 0; d < a.ndim(); ++d) {
    for (int e = d + 1; e < a.ndim(); ++e) {
      if (a.size(d) == 1 || a.size(e) == 1) continue;
      if ((a.stride(d) < a.stride(e)) != (b.stride(d) < b.stride(e))) return false;
    }
  }
  return true;
}

void batch_norm_forward(mt_ctx& ctx, const mt_args_batch_norm_training& args) {
  const TensorView input = args.input, out = args.out;
  if (input.numel() == 0 ||
      (out && (!sdk::same_dtype(out.dtype(), input.dtype()) || !same_order(input, out)))) {
    throw sdk::Declined{};
  }
  visit_floating(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const char* name = "batch_norm_training";
    const T* x = static_cast<const T*>(input.raw());
    const int64_t count = input.size(1), n = input.numel() / count;
    Wide<T>* terms = scratch<Wide<T>>(ctx, 3 * count);
    const auto finish = [&](int pieces, int64_t step, const double2* partial) {
      launch(ctx, name, finish_statistics<T>, finish_grid(count), count, static_cast<double>(n),
             pieces, x, step, partial, PerChannel(args.weight), PerChannel(args.bias), args.eps,
             PerChannel(args.mean), PerChannel(args.var), terms);
    };
    const Wide<T>* const factors = terms;
    if (is_channel_rows<T>(input) && (!out || is_channel_rows<T>(out))) {
      ChannelRows rows{n, count};
      const Grid grid = rows_grid<T>(ctx, rows);
      double2* partial = scratch<double2>(ctx, count * rows.pieces);
      launch(ctx, name, sum_rows<T>, grid, rows, x, &partial->x);
      finish(rows.pieces, 1, partial);
      if (out) launch(ctx, name, apply_rows<T>, grid, rows, x, factors, out.data<T>());
      return;
    }
    const std::array<TensorView, 2> operands = {input, out ? out : input};
    Channels<2> channels(operands);
    with_packs<T>(channels, operands, [&](auto width) {
      const Grid grid = grid_of(ctx, channels);
      const int pieces = static_cast<int>(grid.blocks.y);
      double2* partial = scratch<double2>(ctx, count * pieces);
      launch(ctx, name, sum_squares<T, width()>, grid, channels, x, partial);
      finish(pieces, channels.stride[0], partial);
      if (out) launch(ctx, name, apply<T, width()>, grid, channels, x, factors, out.data<T>());
    });
  });
}

// ---- backward

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    sum_gradients(Channels<3> channels, const T* x, const T* grad, PerChannel means,
                  double2* partial) {
  using W = Wide<T>;
  const int64_t c = channels.own();
  W sum = 0, along = 0;
  if (c < channels.count) {
    const W mean = means.get<W>(c, W(0));
#pragma unroll 2
    for (int64_t j = channels.begin(); j < channels.end(); j += blockDim.y) {
      int64_t at[3];
      channels.rest.offsets(j, at);
      const auto own = load_pack<kWidth>(x + c * channels.stride[0] + at[0]);
      const auto grads = load_pack<kWidth>(grad + c * channels.stride[1] + at[1]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const W g = widen(grads.at[k]);
        sum += g;
        along += g * (widen(own.at[k]) - mean);
      }
    }
  }
  put_partial(c, channels.count, static_cast<double>(sum), static_cast<double>(along), partial);
}

template <class W>
__global__ void __launch_bounds__(32 * kShares)
    finish_gradients(int64_t count, int pieces, double n, const double2* partial, PerChannel weight,
                     PerChannel vars, double eps, PerChannel weight_grad, PerChannel bias_grad,
                     W* terms) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const double2 sums = sum_of_pieces(partial, c, count, pieces);
  if (threadIdx.y != 0 || c >= count) return;
  const W rstd = W(1) / sqrt(vars.get<W>(c, W(1)) + static_cast<W>(eps));
  const W for_weight = static_cast<W>(sums.y) * rstd;
  const W for_bias = static_cast<W>(sums.x);
  weight_grad.put(c, for_weight);
  bias_grad.put(c, for_bias);
  const W scale = rstd * weight.get<W>(c, W(1));
  terms[3 * c] = scale;
  terms[3 * c + 1] = -scale * rstd * (for_weight / static_cast<W>(n));
  terms[3 * c + 2] = -scale * (for_bias / static_cast<W>(n));
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) combine(Channels<3> channels, const T* x, const T* grad,
                                                    PerChannel means, const Wide<T>* terms, T* to) {
  using W = Wide<T>;
  const int64_t c = channels.own();
  if (c >= channels.count) return;
  const W mean = means.get<W>(c, W(0));
  const W scale = terms[3 * c], slope = terms[3 * c + 1], shift = terms[3 * c + 2];
  for (int64_t j = channels.begin(); j < channels.end(); j += blockDim.y) {
    int64_t at[3];
    channels.rest.offsets(j, at);
    auto pack = load_pack<kWidth>(x + c * channels.stride[0] + at[0]);
    const auto grads = load_pack<kWidth>(grad + c * channels.stride[1] + at[1]);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const W value = widen(pack.at[k]) - mean, g = widen(grads.at[k]);
      pack.at[k] = convert<T>(g * scale + value * slope + shift);
    }
    *reinterpret_cast<Pack<T, kWidth>*>(to + c * channels.stride[2] + at[2]) = pack;
  }
}

void batch_norm_backward(mt_ctx& ctx, const mt_args_batch_norm_training_backward& args) {
  const TensorView input = args.input, grad = args.grad_out;
  const TensorView out = wanted(args.output_mask, 0, args.grad_input);
  if (input.numel() == 0 || !sdk::same_dtype(grad.dtype(), input.dtype()) ||
      (out && (!sdk::same_dtype(out.dtype(), input.dtype()) || !same_order(input, out)))) {
    throw sdk::Declined{};
  }
  visit_floating(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    const char* name = "batch_norm_training_backward";
    const int64_t count = input.size(1), n = input.numel() / count;
    W* terms = scratch<W>(ctx, 3 * count);
    const T* x = static_cast<const T*>(input.raw());
    const T* g = static_cast<const T*>(grad.raw());
    const PerChannel means(args.mean);
    const auto finish = [&](int pieces, const double2* partial) {
      launch(ctx, name, finish_gradients<W>, finish_grid(count), count, pieces,
             static_cast<double>(n), partial, PerChannel(args.weight), PerChannel(args.var),
             args.eps, PerChannel(wanted(args.output_mask, 1, args.grad_weight)),
             PerChannel(wanted(args.output_mask, 2, args.grad_bias)), terms);
    };
    const W* const factors = terms;
    if (is_channel_rows<T>(input) && is_channel_rows<T>(grad) &&
        (!out || is_channel_rows<T>(out))) {
      ChannelRows rows{n, count};
      const Grid grid = rows_grid<T>(ctx, rows);
      double2* partial = scratch<double2>(ctx, count * rows.pieces);
      launch(ctx, name, sum_gradient_rows<T>, grid, rows, x, g, means, &partial->x);
      finish(rows.pieces, partial);
      if (out) launch(ctx, name, combine_rows<T>, grid, rows, x, g, means, factors, out.data<T>());
      return;
    }
    const std::array<TensorView, 3> operands = {input, grad, out ? out : input};
    Channels<3> channels(operands);
    with_packs<T>(channels, operands, [&](auto width) {
      const Grid grid = grid_of(ctx, channels);
      const int pieces = static_cast<int>(grid.blocks.y);
      double2* partial = scratch<double2>(ctx, count * pieces);
      launch(ctx, name, sum_gradients<T, width()>, grid, channels, x, g, means, partial);
      finish(pieces, partial);
      if (out) {
        launch(ctx, name, combine<T, width()>, grid, channels, x, g, means, factors, out.data<T>());
      }
    });
  });
}

}  // namespace

void register_batch_norm(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&batch_norm_forward>("channels", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&batch_norm_backward>("channels", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
