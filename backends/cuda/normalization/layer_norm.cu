// Layer and root-mean-square normalization of rows held in registers. Their gradients are computed
// by blocks that go from row to row and have the next ones on their way; those of the parameters
// are sums over rows: every block adds up its rows in registers, column by column, and a second
// kernel adds up the blocks in their order.
#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "backends/cuda/kernel/element.cuh"
#include "backends/cuda/normalization/ahead.cuh"
#include "backends/cuda/normalization/operands.cuh"
#include "backends/cuda/normalization/rows.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/native_layer_norm.h"
#include "mytorch/abi_ops/native_layer_norm_backward.h"
#include "mytorch/abi_ops/native_rms_norm.h"
#include "mytorch/abi_ops/native_rms_norm_backward.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// A parameter, contiguous, of T or of the type that T computes in; may be absent.
struct Vector {
  const void* data = nullptr;
  bool wide = false;

  Vector(const mt_tensor* tensor, mt_dtype dtype, mt_dtype wide_dtype) {
    if (tensor == nullptr) return;
    const TensorView x = tensor;
    const bool same = sdk::same_dtype(x.dtype(), dtype);
    if (!x.is_contiguous() || x.is_host() || !aligned(x.raw()) ||
        (!same && !sdk::same_dtype(x.dtype(), wide_dtype))) {
      throw sdk::Declined{};
    }
    data = x.raw();
    wide = !same;
  }
  // Whether it is there, and of T.
  bool plain() const { return data != nullptr && !wide; }
};

#ifdef __CUDACC__

// A pack of a parameter that is there. `kPlain`: it is plain(), and stays as it lies in memory.
template <bool kPlain, class T, int kWidth>
struct Factors {
  Wide<T> at[kWidth];

  __device__ __forceinline__ void load(const Vector& from, int place) {
    if (is_half<T> && from.wide) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) at[k] = static_cast<const Wide<T>*>(from.data)[place + k];
    } else {
      Factors<true, T, kWidth> plain;
      plain.load(from, place);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) at[k] = plain[k];
    }
  }
  __device__ __forceinline__ Wide<T> operator[](int k) const { return at[k]; }
};
template <class T, int kWidth>
struct Factors<true, T, kWidth> {
  Pack<T, kWidth> pack;

  __device__ __forceinline__ void load(const Vector& from, int place) {
    pack = *reinterpret_cast<const Pack<T, kWidth>*>(static_cast<const T*>(from.data) + place);
  }
  __device__ __forceinline__ Wide<T> operator[](int k) const { return widen(pack.at[k]); }
};

#endif  // __CUDACC__

__device__ __forceinline__ float inverse_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ double inverse_root(double x) { return rsqrt(x); }

// How many elements of a row of n a warp of its threads holds.
template <bool kFull, int kWidth, int kPacks>
__device__ __forceinline__ int held_by(int warp, int n) {
  if (kFull) return 32 * kWidth * kPacks;
  int held = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int first = (p * static_cast<int>(blockDim.x) + warp * 32) * kWidth;
    held += min(max(n - first, 0), 32 * kWidth);
  }
  return held;
}

template <class W>
__device__ __forceinline__ W inverse(int count) {
  return count == 0 ? W(0) : W(1) / static_cast<W>(count);
}

// The means of rows, and the sums of squared distances from them. Each warp takes distances from
// the mean of its own part, and what they found is merged as Chan, Golub and LeVeque do (1979): one
// barrier, and no more is lost to rounding than in two passes. `share` is 1 / n.
template <bool kFull, class T, int kWidth, int kPacks, int kRows, class W = Wide<T>>
__device__ __forceinline__ void moments(OwnRow<T, kWidth, kPacks, kFull> (&row)[kRows], int n,
                                        W share, W (&mean)[kRows], W (&spread)[kRows], int& turn) {
  constexpr int kWarps = kRowThreads<kPacks> / 32;
  const auto add_lanes = [](W(&sums)[kRows], int first_step) {
#pragma unroll
    for (int step = first_step; step > 0; step /= 2) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) sums[i] += __shfl_xor_sync(0xFFFFFFFFu, sums[i], step);
    }
  };
  W sum[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    sum[i] = spread[i] = 0;
    row[i].for_each(n, [&](W value) { sum[i] += value; });
  }
  add_lanes(sum, 16);
  const W own_share = inverse<W>(held_by<kFull, kWidth, kPacks>(threadIdx.x / 32, n));
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    mean[i] = sum[i] * own_share;
    row[i].forget();
    row[i].for_each(n, [&](W value) { spread[i] += (value - mean[i]) * (value - mean[i]); });
  }
  add_lanes(spread, 16);
  if (blockDim.x == 32) return;
  __shared__ W parts[2][kWarps][2 * kRows];
  W(*const found)[2 * kRows] = parts[turn];
  turn ^= 1;
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      found[threadIdx.x / 32][2 * i] = sum[i];
      found[threadIdx.x / 32][2 * i + 1] = spread[i];
    }
  }
  __syncthreads();
  const int warp = threadIdx.x % kWarps;
  const bool there = warp < static_cast<int>(blockDim.x / 32);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    sum[i] = mean[i] = there ? found[warp][2 * i] : W(0);
    spread[i] = there ? found[warp][2 * i + 1] : W(0);
  }
  add_lanes(mean, kWarps / 2);
  const int held = there ? held_by<kFull, kWidth, kPacks>(warp, n) : 0;
  const W part_share = inverse<W>(held);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    mean[i] *= share;
    const W off = sum[i] * part_share - mean[i];
    spread[i] += off * off * static_cast<W>(held);
  }
  add_lanes(spread, kWarps / 2);
}

// A thread goes over few packs of kRowsAtOnce rows: so many loads are under way, and the parameters
// are read once for all of them.
constexpr int kFewNormal = 2, kRowsAtOnce = 2;

// Centered: (x - mean) / deviation, else x / root mean square. `kFull`: rows fill the packs of all
// threads, and the parameters that there may be are plain(). `share` is 1 / n.
template <bool kCentered, bool kFull, class T, int kWidth, int kPacks, int kRows>
__global__ void __launch_bounds__(kRowThreads<kPacks>, kRowBlocks<kPacks>)
    normalize(int64_t rows, int n, Wide<T> share, Wide<T> eps, const T* x, Vector weight,
              Vector bias, T* y, Wide<T>* means, Wide<T>* rstds) {
  using W = Wide<T>;
  using Row = OwnRow<T, kWidth, kPacks, kFull>;
  int turn = 0;
  const int64_t every = static_cast<int64_t>(gridDim.x) * blockDim.y * kRows;
  for (int64_t r = (static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y) * kRows; r < rows;
       r += every) {
    Row row[kRows];
    int64_t own[kRows];  // beyond the last row: that once more, with the same results
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      own[i] = r + i < rows ? r + i : rows - 1;
      row[i].load(x + own[i] * n, n);
    }
    W mean[kRows], spread[kRows], rstd[kRows];
    if constexpr (kCentered) {
      moments(row, n, share, mean, spread, turn);
    } else {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        mean[i] = spread[i] = 0;
        row[i].for_each(n, [&](W value) { spread[i] += value * value; });
      }
      team_sums<kRowThreads<kPacks> / 32>(spread, turn);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      rstd[i] = inverse_root(spread[i] * share + eps);
      row[i].forget();
      if (threadIdx.x == 0) {
        if (means != nullptr) means[own[i]] = mean[i];
        if (rstds != nullptr) rstds[own[i]] = rstd[i];
      }
    }
    if (y == nullptr) continue;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!Row::holds(p, n)) continue;
      const int at = Row::place(p);
      Factors<kFull, T, kWidth> factor, shift;
      const bool scales = kFull || weight.data != nullptr;
      const bool shifts = kCentered && (kFull || bias.data != nullptr);
      if (scales) factor.load(weight, at);
      if (shifts) shift.load(bias, at);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        Pack<T, kWidth> result;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          W value = (widen(row[i].pack[p].at[k]) - mean[i]) * rstd[i];
          if (scales) value *= factor[k];
          if (shifts) value += shift[k];
          result.at[k] = convert<T>(value);
        }
        *reinterpret_cast<Pack<T, kWidth>*>(y + own[i] * n + at) = result;
      }
    }
  }
}

// Two rows and a sum or two for each of their columns leave room for fewer packs. With two sums
// fewer threads that have more to do each are faster, with one it is the other way round.
template <bool kCentered>
constexpr int kFewSums = kCentered ? 2 : 1;
constexpr int kManySums = 4;

// `partial`: for each block and row of it, n sums for the weight and, where centered, n for the
// bias; NULL: not wanted. `kFull`: rows fill the packs of all threads, the weight is plain(), and
// its elements stay with the threads of their columns; a block has one row at a time, so that what
// depends on rows alone takes no thread's registers.
template <bool kCentered, bool kFull, class T, int kWidth, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kPacks>, kPacks == 1 ? 2 : 1)
    gradients(int64_t rows, int n, const T* grad, const T* x, const Wide<T>* means,
              const Wide<T>* rstds, Vector weight, T* to, Wide<T>* partial) {
  using W = Wide<T>;
  using Ahead = RowsAhead<T, kWidth, kPacks, 2, kFull>;
  using Row = typename Ahead::Row;
  W weights[kPacks][kWidth] = {}, biases[kCentered ? kPacks : 1][kWidth] = {};
  const int64_t owner =
      kFull ? blockIdx.x : static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t step = kFull ? gridDim.x : static_cast<int64_t>(gridDim.x) * blockDim.y;
  Ahead ahead(n);
  const auto fetch = [&](int64_t r) {
    const T* const from[] = {grad + r * n, x + r * n};
    ahead.fetch(from, r < rows);
  };
#pragma unroll
  for (int k = 0; k + 1 < Ahead::kRows; ++k) fetch(owner + k * step);
  Row factors;
  if (kFull) factors.load(static_cast<const T*>(weight.data), n);
  int turn = 0;
  const W share = W(1) / static_cast<W>(n);
  W mean = 0, rstd = 0;
  const auto statistics_of = [&](int64_t r, W& mean, W& rstd) {
    if (r >= rows) return;
    if (kCentered) mean = means[r];
    rstd = rstds[r];
  };
  statistics_of(owner, mean, rstd);
  for (int64_t r = owner; r < rows; r += step) {
    fetch(r + (Ahead::kRows - 1) * step);
    Row taken[2];
    ahead.take(taken);
    const Row &g = taken[0], &row = taken[1];
    W next_mean = 0, next_rstd = 0;
    statistics_of(r + step, next_mean, next_rstd);
    // The weights of a pack: held, or read each time.
    const auto read = [&](int p, Factors<false, T, kWidth>& room) {
      if constexpr (!kFull) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) room.at[k] = W(1);
        if (weight.data != nullptr) room.load(weight, Row::place(p));
      }
    };
    const auto factor = [&](int p, int k, const Factors<false, T, kWidth>& room) {
      return kFull ? widen(factors.pack[p].at[k]) : room[k];
    };
    // Kept where registers hold them, else computed again.
    constexpr bool kKeeps = kPacks == 1;
    W normals[kKeeps ? kPacks : 1][kWidth], hs[kKeeps ? kPacks : 1][kWidth];
    W sums[kCentered ? 2 : 1] = {};  // of h * normal, and of h
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!Row::holds(p, n)) continue;
      Factors<false, T, kWidth> room;
      read(p, room);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const W own = widen(g.pack[p].at[k]);
        const W normal = (widen(row.pack[p].at[k]) - mean) * rstd;
        const W h = own * factor(p, k, room);
        weights[p][k] += own * normal;
        sums[0] += h * normal;
        if constexpr (kCentered) {
          biases[p][k] += own;
          sums[1] += h;
        }
        if constexpr (kKeeps) {
          normals[p][k] = normal;
          hs[p][k] = h;
        }
      }
    }
    if (to != nullptr) {
      team_sums<kRowThreads<kPacks> / 32>(sums, turn);
      const W along = -sums[0] * share * rstd;
      const W sum = kCentered ? -sums[kCentered ? 1 : 0] * share * rstd : W(0);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (!Row::holds(p, n)) continue;
        Factors<false, T, kWidth> room;
        if constexpr (!kKeeps) read(p, room);
        Pack<T, kWidth> result;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          W h, normal;
          if constexpr (kKeeps) {
            h = hs[p][k];
            normal = normals[p][k];
          } else {
            h = widen(g.pack[p].at[k]) * factor(p, k, room);
            normal = (widen(row.pack[p].at[k]) - mean) * rstd;
          }
          result.at[k] = convert<T>(h * rstd + (normal * along + sum));
        }
        *reinterpret_cast<Pack<T, kWidth>*>(to + r * n + Row::place(p)) = result;
      }
    }
    mean = next_mean;
    rstd = next_rstd;
  }
  if (partial == nullptr) return;
  W* own = partial + owner * (kCentered ? 2 : 1) * n;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!Row::holds(p, n)) continue;
    const int at = Row::place(p);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      own[at + k] = weights[p][k];
      if constexpr (kCentered) own[n + at + k] = biases[p][k];
    }
  }
}

int64_t product(const mt_int_list& list) {
  int64_t n = 1;
  for (int64_t i = 0; i < list.size; ++i) n *= list.data[i];
  return n;
}

mt_dtype wide_of(mt_dtype dtype) { return dtype.bits == 16 ? sdk::dtype_of<float> : dtype; }

// Gives blocks `bytes` of shared memory, and has as many of them as are worked on at once: each
// goes from row to row. Shared memory beyond what every kernel may have has to be asked for; both
// once on each device.
template <class Kernel>
void keep_busy(const mt_ctx& ctx, Kernel kernel, RowShape& shape, size_t bytes) {
  struct Known {
    size_t bytes = 0;
    int resident = 0;
  };
  Grid& grid = shape.grid;
  grid.shared = bytes;
  const auto* const function = reinterpret_cast<const void*>(kernel);
  const auto threads = static_cast<int>(grid.threads.x * grid.threads.y);
  thread_local std::map<std::tuple<const void*, int32_t, int>, Known> all;
  Known& known = all[{function, ctx.device.index, threads}];
  if (known.resident == 0 || known.bytes < bytes) {
    use_device(ctx);
    if (bytes > 40 * 1024) {
      CUDA(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes)));
    }
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&known.resident, function, threads, bytes));
    known.resident =
        std::clamp(known.resident, 1, std::max(8 / static_cast<int>(grid.threads.y), 1));
    known.bytes = bytes;
  }
  const int blocks = properties(ctx.device.index).multiprocessors * known.resident;
  grid.blocks.x = std::min(grid.blocks.x, static_cast<unsigned>(blocks));
}

// Whether rows of n elements fill the packs of all threads.
bool is_full(const RowShape& shape, int64_t n) {
  return n == int64_t{shape.grid.threads.x} * shape.packs * shape.width;
}

void check_contiguous(const TensorView& x) {
  if (x && !x.is_contiguous()) throw sdk::Declined{};
}

// Rows of n elements, and what they become; a mean only where they are centered.
struct Normalization {
  const char* name;
  const mt_tensor *input, *weight, *bias;
  int64_t n;
  double eps;
  const mt_tensor *out, *mean, *rstd;
};

template <bool kCentered>
void forward(mt_ctx& ctx, const Normalization& call) {
  const TensorView input = call.input, out = call.out;
  const int64_t n = call.n;
  if (n == 0 || input.numel() == 0) throw sdk::Declined{};
  check_contiguous(input);
  check_contiguous(out);
  const int64_t rows = input.numel() / n;
  visit_floating(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (out && !sdk::same_dtype(out.dtype(), input.dtype())) throw sdk::Declined{};
    const bool whole = n % kPack<T> == 0 && aligned(input.raw()) && (!out || aligned(out.raw()));
    RowShape shape = row_shape<T, kFewNormal>(rows, n, whole);
    if (shape.width == 0) throw sdk::Declined{};
    const mt_dtype wide = wide_of(input.dtype());
    const Vector weight(call.weight, input.dtype(), wide), bias(call.bias, input.dtype(), wide);
    Wide<T>* const means = statistic<Wide<T>>(call.mean);
    Wide<T>* const rstds = statistic<Wide<T>>(call.rstd);
    with_row_shape<T, kFewNormal>(shape, [&](auto width, auto packs) {
      constexpr int kRows = packs() == kFewNormal ? kRowsAtOnce : 1;
      shape.grid.blocks.x = (shape.grid.blocks.x + kRows - 1) / kRows;
      const bool full = weight.plain() && (!kCentered || bias.plain()) && is_full(shape, n);
      const auto kernel = full ? normalize<kCentered, true, T, width(), packs(), kRows>
                               : normalize<kCentered, false, T, width(), packs(), kRows>;
      const auto share = static_cast<Wide<T>>(1.0 / static_cast<double>(n));
      launch(ctx, call.name, kernel, shape.grid, rows, static_cast<int>(n), share,
             static_cast<Wide<T>>(call.eps), static_cast<const T*>(input.raw()), weight, bias,
             out ? out.data<T>() : nullptr, means, rstds);
    });
  });
}

void layer_norm(mt_ctx& ctx, const mt_args_native_layer_norm& args) {
  forward<true>(ctx, {"native_layer_norm", args.input, args.weight, args.bias,
                      product(args.normalized_shape), args.eps, args.out, args.mean, args.rstd});
}
void rms_norm(mt_ctx& ctx, const mt_args_native_rms_norm& args) {
  forward<false>(ctx, {"native_rms_norm", args.input, args.weight, nullptr,
                       product(args.normalized_shape), args.eps, args.out, nullptr, args.rstd});
}

// The gradients that are NULL are not wanted.
struct Gradients {
  const char* name;
  const mt_tensor *grad, *input, *mean, *rstd, *weight;
  int64_t n;
  const mt_tensor *to_input, *to_weight, *to_bias;
};

template <bool kCentered>
void backward(mt_ctx& ctx, const Gradients& call) {
  const TensorView input = call.input, grad = call.grad, out = call.to_input;
  const int64_t n = call.n;
  if (n == 0 || input.numel() == 0) throw sdk::Declined{};
  const int64_t rows = input.numel() / n;
  check_contiguous(input);
  check_contiguous(grad);
  check_contiguous(out);
  if (!sdk::same_dtype(grad.dtype(), input.dtype()) ||
      (out && !sdk::same_dtype(out.dtype(), input.dtype()))) {
    throw sdk::Declined{};
  }
  const bool sums = call.to_weight != nullptr || call.to_bias != nullptr;
  visit_floating(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    const bool whole = n % kPack<T> == 0 && aligned(input.raw()) && aligned(grad.raw()) &&
                       (!out || aligned(out.raw()));
    constexpr int kFew = kFewSums<kCentered>;
    RowShape shape = row_shape<T, kFew, kManySums>(rows, n, whole);
    if (shape.width == 0) throw sdk::Declined{};
    Wide<T>* const means = statistic<Wide<T>>(call.mean);
    Wide<T>* const rstds = statistic<Wide<T>>(call.rstd);
    const Vector weight(call.weight, input.dtype(), wide_of(input.dtype()));
    const Sums to_weight(call.to_weight), to_bias(call.to_bias);
    const int64_t columns = (kCentered ? 2 : 1) * n;
    int64_t owners = 0;
    W* partial = nullptr;
    with_row_shape<T, kFew, kManySums>(shape, [&](auto width, auto packs) {
      const bool full = weight.plain() && shape.grid.threads.y == 1 && is_full(shape, n);
      const auto kernel = full ? gradients<kCentered, true, T, width(), packs()>
                               : gradients<kCentered, false, T, width(), packs()>;
      keep_busy(ctx, kernel, shape, ahead_bytes<T, width(), packs(), 2>(shape.grid));
      owners = int64_t{shape.grid.blocks.x} * shape.grid.threads.y;
      if (sums) partial = scratch<W>(ctx, owners * columns);
      launch(ctx, call.name, kernel, shape.grid, rows, static_cast<int>(n),
             static_cast<const T*>(grad.raw()), static_cast<const T*>(input.raw()), means, rstds,
             weight, out ? out.data<T>() : nullptr, partial);
    });
    if (!sums) return;
    Grid grid;
    grid.threads = dim3(32, kShares);
    grid.blocks = dim3(static_cast<unsigned>((columns + 31) / 32));
    launch(ctx, call.name, add_owners<W>, grid, owners, n, columns, static_cast<const W*>(partial),
           to_weight, to_bias);
  });
}

void layer_norm_backward(mt_ctx& ctx, const mt_args_native_layer_norm_backward& args) {
  backward<true>(
      ctx,
      {"native_layer_norm_backward", args.grad_out, args.input, args.mean, args.rstd, args.weight,
       product(args.normalized_shape), wanted(args.output_mask, 0, args.grad_input),
       wanted(args.output_mask, 1, args.grad_weight), wanted(args.output_mask, 2, args.grad_bias)});
}
void rms_norm_backward(mt_ctx& ctx, const mt_args_native_rms_norm_backward& args) {
  backward<false>(
      ctx, {"native_rms_norm_backward", args.grad_out, args.input, nullptr, args.rstd, args.weight,
            product(args.normalized_shape), wanted(args.output_mask, 0, args.grad_input),
            wanted(args.output_mask, 1, args.grad_weight), nullptr});
}

}  // namespace

void register_layer_norm(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&layer_norm>("rows", kTakes));
  kernels.push_back(sdk::kernel<&layer_norm_backward>("rows", kTakes));
  kernels.push_back(sdk::kernel<&rms_norm>("rows", kTakes));
  kernels.push_back(sdk::kernel<&rms_norm_backward>("rows", kTakes));
}

}  // namespace mytorch::cuda
