// Layer normalization of rows held in registers, by blocks that go from row to row and have the
// next ones on their way. The gradients of the parameters are sums over rows: every block adds up
// its rows in registers, column by column, and a second kernel adds up the blocks in their order.
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "backends/cuda/kernel/element.cuh"
#include "backends/cuda/normalization/ahead.cuh"
#include "backends/cuda/normalization/rows.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/native_layer_norm.h"
#include "mytorch/abi_ops/native_layer_norm_backward.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// A parameter, dense, of T or of the type that T computes in; may be absent.
struct Vector {
  const void* data = nullptr;
  bool wide = false;

  Vector(const mt_tensor* tensor, mt_dtype dtype, mt_dtype wide_dtype) {
    if (tensor == nullptr) return;
    const TensorView x = tensor;
    const bool same = sdk::same_dtype(x.dtype(), dtype);
    if (!x.is_dense() || x.is_host() || !aligned(x.raw()) ||
        (!same && !sdk::same_dtype(x.dtype(), wide_dtype))) {
      throw sdk::Declined{};
    }
    data = x.raw();
    wide = !same;
  }
  // Whether it is there, and of T.
  bool plain() const { return data != nullptr && !wide; }
#ifdef __CUDACC__
  // `kPlain`: plain() is known.
  template <class T, int kWidth, bool kPlain = false>
  __device__ __forceinline__ void load(int64_t at, Wide<T> (&to)[kWidth]) const {
    if (!kPlain && is_half<T> && wide) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) to[k] = static_cast<const Wide<T>*>(data)[at + k];
    } else {
      const auto pack = *reinterpret_cast<const Pack<T, kWidth>*>(static_cast<const T*>(data) + at);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) to[k] = widen(pack.at[k]);
    }
  }
#endif
};

// The gradient of a parameter: dense, of any floating type.
struct Sums {
  void* data = nullptr;
  uint32_t key = 0;

  explicit Sums(const mt_tensor* tensor) {
    if (tensor == nullptr) return;
    const TensorView x = tensor;
    if (!x.is_dense() || x.is_host()) throw sdk::Declined{};
    data = x.raw();
    key = sdk::dtype_key(x.dtype());
  }
};

__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }

// `kPlain`: both parameters are.
template <bool kPlain, class T, int kWidth, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kPacks>, kRowBlocks<kPacks>)
    normalize(int64_t rows, int64_t n, const T* x, Vector weight, Vector bias, double eps, T* y,
              Wide<T>* means, Wide<T>* rstds) {
  using W = Wide<T>;
  using Row = OwnRow<T, kWidth, kPacks>;
  int turn = 0;
  for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < rows;
       r += static_cast<int64_t>(gridDim.x) * blockDim.y) {
    Row row;
    row.load(x + r * n, n);
    W sum[1] = {0}, spread[1] = {0};
    row.for_each(n, [&](W value) { sum[0] += value; });
    team_sums<kRowThreads<kPacks> / 32>(sum, turn);
    const W mean = sum[0] / static_cast<W>(n);
    row.for_each(n, [&](W value) { spread[0] += (value - mean) * (value - mean); });
    team_sums<kRowThreads<kPacks> / 32>(spread, turn);
    const W rstd = W(1) / root(spread[0] / static_cast<W>(n) + static_cast<W>(eps));
    if (threadIdx.x == 0) {
      if (means != nullptr) means[r] = mean;
      if (rstds != nullptr) rstds[r] = rstd;
    }
    if (y == nullptr) continue;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t at = Row::place(p);
      if (at >= n) continue;
      W values[kWidth], factor[kWidth];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = (widen(row.pack[p].at[k]) - mean) * rstd;
      if (kPlain || weight.data != nullptr) {
        weight.load<T, kWidth, kPlain>(at, factor);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] *= factor[k];
      }
      if (kPlain || bias.data != nullptr) {
        bias.load<T, kWidth, kPlain>(at, factor);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] += factor[k];
      }
      Pack<T, kWidth> result;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) result.at[k] = convert<T>(values[k]);
      *reinterpret_cast<Pack<T, kWidth>*>(y + r * n + at) = result;
    }
  }
}

// Two rows and two sums for each of their columns leave room for fewer packs.
constexpr int kFewSums = 1, kManySums = 4;

// `partial`: for each block and row of it, n sums for the weight and n for the bias; NULL: not
// wanted. `kPlain`: the weight is, and its elements stay with the threads of their columns; a block
// has one row at a time, so that what depends on rows alone takes no thread's registers.
template <bool kPlain, class T, int kWidth, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kPacks>, kPacks == kFewSums ? 2 : 1)
    gradients(int64_t rows, int64_t n, const T* grad, const T* x, const Wide<T>* means,
              const Wide<T>* rstds, Vector weight, T* to, Wide<T>* partial) {
  using W = Wide<T>;
  using Ahead = RowsAhead<T, kWidth, kPacks, 2>;
  using Row = typename Ahead::Row;
  W weights[kPacks][kWidth] = {}, biases[kPacks][kWidth] = {};
  const int64_t owner =
      kPlain ? blockIdx.x : static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t step = kPlain ? gridDim.x : static_cast<int64_t>(gridDim.x) * blockDim.y;
  Ahead ahead(n);
  const auto fetch = [&](int64_t r) {
    const T* const from[] = {grad + r * n, x + r * n};
    ahead.fetch(from, r < rows);
  };
#pragma unroll
  for (int k = 0; k + 1 < Ahead::kRows; ++k) fetch(owner + k * step);
  Row factors;
  if (kPlain) factors.load(static_cast<const T*>(weight.data), n);
  int turn = 0;
  const W share = W(1) / static_cast<W>(n);
  W mean = 0, rstd = 0;
  if (owner < rows) {
    mean = means[owner];
    rstd = rstds[owner];
  }
  for (int64_t r = owner; r < rows; r += step) {
    fetch(r + (Ahead::kRows - 1) * step);
    Row taken[2];
    ahead.take(taken);
    const Row &g = taken[0], &row = taken[1];
    W next_mean = 0, next_rstd = 0;
    if (r + step < rows) {
      next_mean = means[r + step];
      next_rstd = rstds[r + step];
    }
    // The weights of a pack: held, or read each time into `room`.
    const auto read = [&](int p, W(&room)[kWidth]) {
      if constexpr (!kPlain) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) room[k] = W(1);
        if (weight.data != nullptr) weight.load<T, kWidth>(Row::place(p), room);
      }
    };
    const auto factor = [&](int p, int k, const W(&room)[kWidth]) {
      return kPlain ? widen(factors.pack[p].at[k]) : room[k];
    };
    // Kept where registers hold them, else computed again.
    constexpr bool kKeeps = kPacks == kFewSums;
    W normals[kKeeps ? kPacks : 1][kWidth], hs[kKeeps ? kPacks : 1][kWidth];
    W sums[2] = {0, 0};  // of h, and of h * normal
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (Row::place(p) >= n) continue;
      W room[kWidth];
      read(p, room);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const W own = widen(g.pack[p].at[k]);
        const W normal = (widen(row.pack[p].at[k]) - mean) * rstd;
        const W h = own * factor(p, k, room);
        weights[p][k] += own * normal;
        biases[p][k] += own;
        sums[0] += h;
        sums[1] += h * normal;
        if constexpr (kKeeps) {
          normals[p][k] = normal;
          hs[p][k] = h;
        }
      }
    }
    if (to != nullptr) {
      team_sums<kRowThreads<kPacks> / 32>(sums, turn);
      const W sum = -sums[0] * share * rstd, along = -sums[1] * share * rstd;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (Row::place(p) >= n) continue;
        W room[kWidth];
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
  W* own = partial + owner * 2 * n;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t at = Row::place(p);
    if (at >= n) continue;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      own[at + k] = weights[p][k];
      own[n + at + k] = biases[p][k];
    }
  }
}

constexpr int kShares = 16;  // of the owners, for each column

// Column c of the sums of all owners: of the weight below n, of the bias above.
template <class W>
__global__ void __launch_bounds__(32 * kShares)
    add_owners(int64_t owners, int64_t n, const W* partial, Sums weight, Sums bias) {
  __shared__ W parts[kShares][32];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  W sum = 0;
  if (column < 2 * n) {
#pragma unroll 8
    for (int64_t o = threadIdx.y; o < owners; o += kShares) sum += partial[o * 2 * n + column];
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= 2 * n) return;
  for (int share = 1; share < kShares; ++share) sum += parts[share][threadIdx.x];
  const Sums& to = column < n ? weight : bias;
  if (to.data != nullptr) store_any(to.data, column < n ? column : column - n, to.key, sum);
}

// A mean or an rstd of each row, in the type that is computed in; may be absent.
template <class W>
W* statistic(const mt_tensor* tensor) {
  if (tensor == nullptr) return nullptr;
  const TensorView x = tensor;
  if (!x.is_dense() || x.is_host() || !sdk::is_dtype<W>(x.dtype())) throw sdk::Declined{};
  return x.data<W>();
}

int64_t product(const mt_int_list& list) {
  int64_t n = 1;
  for (int64_t i = 0; i < list.size; ++i) n *= list.data[i];
  return n;
}

const mt_tensor* wanted(const mt_int_list& mask, int64_t i, const mt_tensor* out) {
  return mask.size <= i || mask.data[i] != 0 ? out : nullptr;
}

mt_dtype wide_of(mt_dtype dtype) { return dtype.bits == 16 ? sdk::dtype_of<float> : dtype; }

// As many blocks as are worked on at once, about; each goes from row to row.
void keep_busy(const mt_ctx& ctx, RowShape& shape) {
  const unsigned threads = shape.grid.threads.x * shape.grid.threads.y;
  const unsigned each = std::max(std::min(1024 / threads, 8 / shape.grid.threads.y), 1u);
  const auto all = static_cast<unsigned>(properties(ctx.device.index).multiprocessors) * each;
  shape.grid.blocks.x = std::min(shape.grid.blocks.x, all);
}

// Shared memory beyond what every kernel may have has to be asked for, once on each device.
template <class Kernel>
void give_room(const mt_ctx& ctx, Kernel kernel, RowShape& shape, size_t bytes) {
  shape.grid.shared = bytes;
  if (bytes <= 40 * 1024) return;
  const auto* const function = reinterpret_cast<const void*>(kernel);
  thread_local std::map<std::pair<const void*, int32_t>, size_t> given;
  size_t& most = given[{function, ctx.device.index}];
  if (most >= bytes) return;
  use_device(ctx);
  CUDA(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(bytes)));
  most = bytes;
}

void check_dense(const TensorView& x) {
  if (x && !x.is_dense()) throw sdk::Declined{};
}

void forward(mt_ctx& ctx, const mt_args_native_layer_norm& args) {
  const TensorView input = args.input, out = args.out;
  const int64_t n = product(args.normalized_shape);
  if (n == 0 || input.numel() == 0) throw sdk::Declined{};
  check_dense(input);
  check_dense(out);
  const int64_t rows = input.numel() / n;
  visit_floating(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (out && !sdk::same_dtype(out.dtype(), input.dtype())) throw sdk::Declined{};
    const bool whole = n % kPack<T> == 0 && aligned(input.raw()) && (!out || aligned(out.raw()));
    const RowShape shape = row_shape<T>(rows, n, whole);
    if (shape.width == 0) throw sdk::Declined{};
    const mt_dtype wide = wide_of(input.dtype());
    const Vector weight(args.weight, input.dtype(), wide), bias(args.bias, input.dtype(), wide);
    Wide<T>* const means = statistic<Wide<T>>(args.mean);
    Wide<T>* const rstds = statistic<Wide<T>>(args.rstd);
    with_row_shape<T>(shape, [&](auto width, auto packs) {
      const auto kernel = weight.plain() && bias.plain() ? normalize<true, T, width(), packs()>
                                                         : normalize<false, T, width(), packs()>;
      launch(ctx, "native_layer_norm", kernel, shape.grid, rows, n,
             static_cast<const T*>(input.raw()), weight, bias, args.eps,
             out ? out.data<T>() : nullptr, means, rstds);
    });
  });
}

void backward(mt_ctx& ctx, const mt_args_native_layer_norm_backward& args) {
  const TensorView input = args.input, grad = args.grad_out;
  const int64_t n = product(args.normalized_shape);
  if (n == 0 || input.numel() == 0) throw sdk::Declined{};
  const int64_t rows = input.numel() / n;
  const TensorView out = wanted(args.output_mask, 0, args.grad_input);
  const mt_tensor* for_weight = wanted(args.output_mask, 1, args.grad_weight);
  const mt_tensor* for_bias = wanted(args.output_mask, 2, args.grad_bias);
  check_dense(input);
  check_dense(grad);
  check_dense(out);
  if (!sdk::same_dtype(grad.dtype(), input.dtype()) ||
      (out && !sdk::same_dtype(out.dtype(), input.dtype()))) {
    throw sdk::Declined{};
  }
  const bool sums = for_weight != nullptr || for_bias != nullptr;
  visit_floating(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    const bool whole = n % kPack<T> == 0 && aligned(input.raw()) && aligned(grad.raw()) &&
                       (!out || aligned(out.raw()));
    RowShape shape = row_shape<T, kFewSums, kManySums>(rows, n, whole);
    if (shape.width == 0) throw sdk::Declined{};
    keep_busy(ctx, shape);
    Wide<T>* const means = statistic<Wide<T>>(args.mean);
    Wide<T>* const rstds = statistic<Wide<T>>(args.rstd);
    const Vector weight(args.weight, input.dtype(), wide_of(input.dtype()));
    const Sums to_weight(for_weight), to_bias(for_bias);
    const int64_t owners = int64_t{shape.grid.blocks.x} * shape.grid.threads.y;
    W* partial = sums ? scratch<W>(ctx, owners * 2 * n) : nullptr;
    with_row_shape<T, kFewSums, kManySums>(shape, [&](auto width, auto packs) {
      const bool plain = weight.plain() && shape.grid.threads.y == 1;
      const auto kernel =
          plain ? gradients<true, T, width(), packs()> : gradients<false, T, width(), packs()>;
      give_room(ctx, kernel, shape, ahead_bytes<T, width(), packs(), 2>(shape.grid));
      launch(ctx, "native_layer_norm_backward", kernel, shape.grid, rows, n,
             static_cast<const T*>(grad.raw()), static_cast<const T*>(input.raw()), means, rstds,
             weight, out ? out.data<T>() : nullptr, partial);
    });
    if (!sums) return;
    Grid grid;
    grid.threads = dim3(32, kShares);
    grid.blocks = dim3(static_cast<unsigned>((2 * n + 31) / 32));
    launch(ctx, "native_layer_norm_backward", add_owners<W>, grid, owners, n,
           static_cast<const W*>(partial), to_weight, to_bias);
  });
}

}  // namespace

void register_layer_norm(Candidates& candidates) {
  candidates.push_back(sdk::kernel<&forward>("native_layer_norm", MT_HASH_native_layer_norm, "rows",
                                             0, MT_TAKES_STRIDED));
  candidates.push_back(sdk::kernel<&backward>("native_layer_norm_backward",
                                              MT_HASH_native_layer_norm_backward, "rows", 0,
                                              MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
