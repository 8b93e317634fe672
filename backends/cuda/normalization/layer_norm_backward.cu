// The gradients of layer and root-mean-square normalization, to which that of the residual stream
// may be added. Each block goes from row to row and
// prefetches the next ones. The parameters' gradients are sums over rows: every block accumulates
// its rows in registers, column by column, and a second kernel adds the blocks' sums in order.
#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/rows.cuh"
#include "backends/cuda/normalization/layer_norm.cuh"
#include "backends/cuda/normalization/operands.cuh"
#include "backends/cuda/normalization/prefetch.cuh"
#include "backends/cuda/normalization/team_sums.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/native_add_layer_norm_backward.h"
#include "mytorch/abi_ops/native_add_rms_norm_backward.h"
#include "mytorch/abi_ops/native_layer_norm_backward.h"
#include "mytorch/abi_ops/native_rms_norm_backward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// Two rows, and one or two sums for each of their columns, leave registers for fewer packs. With
// two sums, fewer threads with more work each are faster; with one, more threads are.
template <bool kCentered>
constexpr int kFewSums = kCentered ? 2 : 1;
constexpr int kManySums = 4;

// `partial`: for each block and each row of its threads, n sums for the weight and, if centered, n
// for the bias; NULL if not wanted. `kFull`: rows fill the packs of all threads, the weight is
// plain(), and each thread keeps the weights of its columns; a block has one row at a time, so that
// values that depend only on the row need no per-thread registers. `kAdds`: `added` is added to the
// gradient of the input.
template <bool kCentered, bool kAdds, bool kFull, class T, int kWidth, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kPacks>, kPacks == 1 ? 2 : 1)
    gradients(int64_t rows, int n, const T* grad, const T* x, const T* added, const Wide<T>* means,
              const Wide<T>* rstds, Vector weight, T* to, Wide<T>* partial) {
  using W = Wide<T>;
  constexpr int kOperands = kAdds ? 3 : 2;
  using Prefetcher = RowPrefetcher<T, kWidth, kPacks, kOperands, kFull>;
  using Row = typename Prefetcher::Row;
  W weights[kPacks][kWidth] = {}, biases[kCentered ? kPacks : 1][kWidth] = {};
  const int64_t owner =
      kFull ? blockIdx.x : static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t step = kFull ? gridDim.x : static_cast<int64_t>(gridDim.x) * blockDim.y;
  Prefetcher prefetcher(n);
  const auto fetch = [&](int64_t r) {
    if constexpr (kAdds) {
      const T* const from[] = {grad + r * n, x + r * n, added + r * n};
      prefetcher.fetch(from, r < rows);
    } else {
      const T* const from[] = {grad + r * n, x + r * n};
      prefetcher.fetch(from, r < rows);
    }
  };
#pragma unroll
  for (int k = 0; k + 1 < Prefetcher::kRows; ++k) fetch(owner + k * step);
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
    fetch(r + (Prefetcher::kRows - 1) * step);
    Row taken[kOperands];
    prefetcher.take(taken);
    const Row &g = taken[0], &row = taken[1];
    W next_mean = 0, next_rstd = 0;
    statistics_of(r + step, next_mean, next_rstd);
    // The weights of a pack: kept in registers or read each time.
    const auto read = [&](int p, Factors<false, T, kWidth>& storage) {
      if constexpr (!kFull) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) storage.at[k] = W(1);
        if (weight.data != nullptr) storage.load(weight, Row::place(p));
      }
    };
    const auto factor = [&](int p, int k, const Factors<false, T, kWidth>& storage) {
      return kFull ? widen(factors.pack[p].at[k]) : storage[k];
    };
    // Kept in registers if they fit, else recomputed.
    constexpr bool kKeeps = kPacks == 1;
    W normals[kKeeps ? kPacks : 1][kWidth], hs[kKeeps ? kPacks : 1][kWidth];
    W sums[kCentered ? 2 : 1] = {};  // of h * normal and of h
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!Row::holds(p, n)) continue;
      Factors<false, T, kWidth> storage;
      read(p, storage);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const W own = widen(g.pack[p].at[k]);
        const W normal = (widen(row.pack[p].at[k]) - mean) * rstd;
        const W h = own * factor(p, k, storage);
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
        Factors<false, T, kWidth> storage;
        if constexpr (!kKeeps) read(p, storage);
        Pack<T, kWidth> result;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          W h, normal;
          if constexpr (kKeeps) {
            h = hs[p][k];
            normal = normals[p][k];
          } else {
            h = widen(g.pack[p].at[k]) * factor(p, k, storage);
            normal = (widen(row.pack[p].at[k]) - mean) * rstd;
          }
          W value = h * rstd + (normal * along + sum);
          if constexpr (kAdds) value += widen(taken[2].pack[p].at[k]);
          result.at[k] = convert<T>(value);
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

// Gives blocks `bytes` of shared memory and launches as many as the device holds at once: each goes
// from row to row. Shared memory beyond the default limit must be requested; both queries run once
// for each device.
template <class Kernel>
void keep_busy(const mt_ctx& ctx, Kernel kernel, RowShape& shape, size_t bytes) {
  struct Known {
    size_t bytes = 0;
    int resident = 0;
  };
  Grid& grid = shape.grid;
  if (bytes > properties(ctx.device.index).shared) throw sdk::Declined{};
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

// Gradients that are NULL are not wanted.
struct Gradients {
  const char* name;
  const mt_tensor *grad, *input, *mean, *rstd, *weight;
  int64_t n;
  const mt_tensor *to_input, *to_weight, *to_bias;
  const mt_tensor* added = nullptr;  // to the gradient of the input
};

template <bool kCentered, bool kAdds>
void differentiate_rows(mt_ctx& ctx, const Gradients& call) {
  const TensorView input = call.input, grad = call.grad, out = call.to_input, added = call.added;
  const int64_t n = call.n;
  if (n == 0 || input.numel() == 0) throw sdk::Declined{};
  const int64_t rows = input.numel() / n;
  for (const TensorView& each : {input, grad, out, added}) {
    check_contiguous(each);
    if (each && !sdk::same_dtype(each.dtype(), input.dtype())) throw sdk::Declined{};
  }
  const bool sums = call.to_weight != nullptr || call.to_bias != nullptr;
  visit_floating(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    bool whole = n % kPack<T> == 0;
    for (const TensorView& each : {input, grad, out, added}) {
      whole = whole && (!each || aligned(each.raw()));
    }
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
      const auto kernel = full ? gradients<kCentered, kAdds, true, T, width(), packs()>
                               : gradients<kCentered, kAdds, false, T, width(), packs()>;
      keep_busy(ctx, kernel, shape, prefetch_bytes < T, width(), packs(),
                kAdds ? 3 : 2 > (shape.grid));
      owners = int64_t{shape.grid.blocks.x} * shape.grid.threads.y;
      if (sums) partial = scratch<W>(ctx, owners * columns);
      launch(ctx, call.name, kernel, shape.grid, rows, static_cast<int>(n),
             static_cast<const T*>(grad.raw()), static_cast<const T*>(input.raw()),
             added ? static_cast<const T*>(added.raw()) : nullptr, means, rstds, weight,
             out ? out.data<T>() : nullptr, partial);
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
  differentiate_rows<true, false>(
      ctx,
      {"native_layer_norm_backward", args.grad_out, args.input, args.mean, args.rstd, args.weight,
       product(args.normalized_shape), wanted(args.output_mask, 0, args.grad_input),
       wanted(args.output_mask, 1, args.grad_weight), wanted(args.output_mask, 2, args.grad_bias)});
}
void rms_norm_backward(mt_ctx& ctx, const mt_args_native_rms_norm_backward& args) {
  differentiate_rows<false, false>(
      ctx, {"native_rms_norm_backward", args.grad_out, args.input, nullptr, args.rstd, args.weight,
            product(args.normalized_shape), wanted(args.output_mask, 0, args.grad_input),
            wanted(args.output_mask, 1, args.grad_weight), nullptr});
}
void add_layer_norm_backward(mt_ctx& ctx, const mt_args_native_add_layer_norm_backward& args) {
  differentiate_rows<true, true>(
      ctx,
      {"native_add_layer_norm_backward", args.grad_out, args.sum, args.mean, args.rstd, args.weight,
       product(args.normalized_shape), wanted(args.output_mask, 0, args.grad_input),
       wanted(args.output_mask, 1, args.grad_weight), wanted(args.output_mask, 2, args.grad_bias),
       args.grad_sum});
}
void add_rms_norm_backward(mt_ctx& ctx, const mt_args_native_add_rms_norm_backward& args) {
  differentiate_rows<false, true>(
      ctx,
      {"native_add_rms_norm_backward", args.grad_out, args.sum, nullptr, args.rstd, args.weight,
       product(args.normalized_shape), wanted(args.output_mask, 0, args.grad_input),
       wanted(args.output_mask, 1, args.grad_weight), nullptr, args.grad_sum});
}

}  // namespace

void register_layer_norm_backward(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&layer_norm_backward>("rows", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&rms_norm_backward>("rows", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&add_layer_norm_backward>("rows", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&add_rms_norm_backward>("rows", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
