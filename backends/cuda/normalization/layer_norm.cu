// Layer and root-mean-square normalization of rows held in registers, also of the sum of an input
// and a residual.
#include <cstdint>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/rows.cuh"
#include "backends/cuda/normalization/layer_norm.cuh"
#include "backends/cuda/normalization/operands.cuh"
#include "backends/cuda/normalization/team_sums.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/native_add_layer_norm.h"
#include "mytorch/abi_ops/native_add_rms_norm.h"
#include "mytorch/abi_ops/native_layer_norm.h"
#include "mytorch/abi_ops/native_rms_norm.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

__device__ __forceinline__ float inverse_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ double inverse_root(double x) { return rsqrt(x); }

// Returns how many elements of a row of n a warp holds.
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

// Computes the means of rows and the sums of squared deviations. Each warp takes deviations from
// the mean of its own part, and the parts are merged as by Chan, Golub and LeVeque (1979): one
// barrier, and no less precise than two passes. `share` is 1 / n.
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

// The same as moments(), and the inverse deviation, for rows whose squares exceed the range of
// float32 or vanish in it. Without kCentered the mean is 0.
template <bool kCentered, bool kFull, class T, int kWidth, int kPacks, int kRows>
__device__ __forceinline__ void wide_moments(OwnRow<T, kWidth, kPacks, kFull> (&row)[kRows], int n,
                                             float eps, float (&mean)[kRows], float (&rstd)[kRows],
                                             int& turn) {
  constexpr int kWarps = kRowThreads<kPacks> / 32;
  double center[kRows] = {}, spread[kRows] = {};
  if constexpr (kCentered) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      row[i].for_each(n, [&](float value) { center[i] += static_cast<double>(value); });
    }
    team_sums<kWarps>(center, turn);
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    center[i] /= n;
    mean[i] = static_cast<float>(center[i]);
    row[i].for_each(n, [&](float value) {
      const double off = static_cast<double>(value) - center[i];
      spread[i] += off * off;
    });
  }
  team_sums<kWarps>(spread, turn);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    rstd[i] = static_cast<float>(1 / sqrt(spread[i] / n + static_cast<double>(eps)));
  }
}

// With few packs per row, a thread processes kRowsAtOnce rows: this puts enough loads in flight,
// and the parameters are read once for all of them. With a residual, half as many elements of each
// row do this.
constexpr int kFewNormal = 2, kRowsAtOnce = 2;
template <bool kAdds>
constexpr int kLeastNormal = kAdds ? 1 : kFewNormal;

// kCentered: (x - mean) / deviation; otherwise x / root mean square. `kFull`: rows fill the packs
// of all threads, and the parameters are plain() and present. `share` is 1 / n. `kAdds`: `residual`
// is added to x, and the sum stored.
template <bool kCentered, bool kAdds, bool kFull, class T, int kWidth, int kPacks, int kRows>
__global__ void __launch_bounds__(kRowThreads<kPacks>, kRowBlocks<kPacks>)
    normalize(int64_t rows, int n, Wide<T> share, Wide<T> eps, const T* x, const T* residual,
              T* sum, Vector weight, Vector bias, T* y, Wide<T>* means, Wide<T>* rstds) {
  using W = Wide<T>;
  using Row = OwnRow<T, kWidth, kPacks, kFull>;
  int turn = 0;
  const int64_t every = static_cast<int64_t>(gridDim.x) * blockDim.y * kRows;
  for (int64_t r = (static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y) * kRows; r < rows;
       r += every) {
    Row row[kRows];
    int64_t own[kRows];  // beyond the last row, the last row again, with the same results
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      own[i] = r + i < rows ? r + i : rows - 1;
      row[i].load(x + own[i] * n, n);
    }
    if constexpr (kAdds) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) row[i].add(residual + own[i] * n, n);
#pragma unroll
      for (int i = 0; i < kRows; ++i) row[i].store(sum + own[i] * n, n);
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
    }
    if constexpr (sizeof(W) == 4) {  // all threads of a row have the same sums
      bool held = true;
#pragma unroll
      for (int i = 0; i < kRows; ++i) held = held && holds_square(spread[i] * share + eps);
      if (!held) wide_moments<kCentered>(row, n, eps, mean, rstd, turn);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
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

// Rows of n elements and their outputs; `mean` is used only if centered.
struct Normalization {
  const char* name;
  const mt_tensor *input, *weight, *bias;
  int64_t n;
  double eps;
  const mt_tensor *out, *mean, *rstd;
  const mt_tensor *residual = nullptr, *sum = nullptr;  // both or none
};

template <bool kCentered, bool kAdds>
void normalize_rows(mt_ctx& ctx, const Normalization& call) {
  const TensorView input = call.input, out = call.out, residual = call.residual, sum = call.sum;
  const int64_t n = call.n;
  if (n == 0 || input.numel() == 0) throw sdk::Declined{};
  for (const TensorView& each : {input, out, residual, sum}) {
    check_contiguous(each);
    if (each && !sdk::same_dtype(each.dtype(), input.dtype())) throw sdk::Declined{};
  }
  const int64_t rows = input.numel() / n;
  visit_floating(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    bool whole = n % kPack<T> == 0;
    for (const TensorView& each : {input, out, residual, sum}) {
      whole = whole && (!each || aligned(each.raw()));
    }
    constexpr int kLeast = kLeastNormal<kAdds>;
    RowShape shape = row_shape<T, kFewNormal, kManyPacks, kLeast>(rows, n, whole);
    if (shape.width == 0) throw sdk::Declined{};
    const mt_dtype wide = wide_of(input.dtype());
    const Vector weight(call.weight, input.dtype(), wide), bias(call.bias, input.dtype(), wide);
    Wide<T>* const means = statistic<Wide<T>>(call.mean);
    Wide<T>* const rstds = statistic<Wide<T>>(call.rstd);
    with_row_shape<T, kFewNormal, kManyPacks, kLeast>(shape, [&](auto width, auto packs) {
      constexpr int kRows = packs() == kLeast ? kRowsAtOnce : 1;
      shape.grid.blocks.x = (shape.grid.blocks.x + kRows - 1) / kRows;
      const bool full = weight.plain() && (!kCentered || bias.plain()) && is_full(shape, n);
      const auto kernel = full ? normalize<kCentered, kAdds, true, T, width(), packs(), kRows>
                               : normalize<kCentered, kAdds, false, T, width(), packs(), kRows>;
      const auto share = static_cast<Wide<T>>(1.0 / static_cast<double>(n));
      launch(ctx, call.name, kernel, shape.grid, rows, static_cast<int>(n), share,
             static_cast<Wide<T>>(call.eps), static_cast<const T*>(input.raw()),
             residual ? static_cast<const T*>(residual.raw()) : nullptr,
             sum ? sum.data<T>() : nullptr, weight, bias, out ? out.data<T>() : nullptr, means,
             rstds);
    });
  });
}

void layer_norm(mt_ctx& ctx, const mt_args_native_layer_norm& args) {
  normalize_rows<true, false>(
      ctx, {"native_layer_norm", args.input, args.weight, args.bias, product(args.normalized_shape),
            args.eps, args.out, args.mean, args.rstd});
}
void rms_norm(mt_ctx& ctx, const mt_args_native_rms_norm& args) {
  normalize_rows<false, false>(
      ctx, {"native_rms_norm", args.input, args.weight, nullptr, product(args.normalized_shape),
            args.eps, args.out, nullptr, args.rstd});
}
void add_layer_norm(mt_ctx& ctx, const mt_args_native_add_layer_norm& args) {
  normalize_rows<true, true>(ctx, {"native_add_layer_norm", args.input, args.weight, args.bias,
                                   product(args.normalized_shape), args.eps, args.out, args.mean,
                                   args.rstd, args.residual, args.sum});
}
void add_rms_norm(mt_ctx& ctx, const mt_args_native_add_rms_norm& args) {
  normalize_rows<false, true>(
      ctx, {"native_add_rms_norm", args.input, args.weight, nullptr, product(args.normalized_shape),
            args.eps, args.out, nullptr, args.rstd, args.residual, args.sum});
}

}  // namespace

void register_layer_norm(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&layer_norm>("rows", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&rms_norm>("rows", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&add_layer_norm>("rows", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&add_rms_norm>("rows", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
