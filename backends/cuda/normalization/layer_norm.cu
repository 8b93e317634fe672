// Layer normalization of rows held in registers. The gradients of the parameters are sums over
// rows: every block adds up its rows in registers, column by column, and a second kernel adds up
// the blocks in their order.
#include <algorithm>
#include <cstdint>

#include "backends/cuda/kernel/element.cuh"
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
#ifdef __CUDACC__
  template <class T, int kWidth>
  __device__ __forceinline__ void load(int64_t at, Wide<T> (&to)[kWidth]) const {
    if (is_half<T> && wide) {
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

// A statistic, or a parameter that is written: dense.
struct Statistic {
  void* data = nullptr;
  uint32_t key = 0;

  explicit Statistic(const mt_tensor* tensor) {
    if (tensor == nullptr) return;
    const TensorView x = tensor;
    if (!x.is_dense() || x.is_host()) throw sdk::Declined{};
    data = x.raw();
    key = sdk::dtype_key(x.dtype());
  }
};

__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }

template <class T, int kWidth, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kPacks>, kRowBlocks<kPacks>)
    normalize(int64_t rows, int64_t n, const T* x, Vector weight, Vector bias, double eps, T* y,
              Statistic means, Statistic rstds) {
  using W = Wide<T>;
  using Row = OwnRow<T, kWidth, kPacks>;
  for (int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < rows;
       r += static_cast<int64_t>(gridDim.x) * blockDim.y) {
    Row row;
    row.load(x + r * n, n);
    W sum = 0;
    row.for_each(n, [&](W value) { sum += value; });
    const W mean = row_sum(sum) / static_cast<W>(n);
    W spread = 0;
    row.for_each(n, [&](W value) { spread += (value - mean) * (value - mean); });
    const W var = row_sum(spread) / static_cast<W>(n);
    const W rstd = W(1) / root(var + static_cast<W>(eps));
    if (threadIdx.x == 0) {
      if (means.data != nullptr) store_any(means.data, r, means.key, mean);
      if (rstds.data != nullptr) store_any(rstds.data, r, rstds.key, rstd);
    }
    if (y == nullptr) continue;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t at = Row::place(p);
      if (at >= n) continue;
      W values[kWidth], factor[kWidth];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = (widen(row.pack[p].at[k]) - mean) * rstd;
      if (weight.data != nullptr) {
        weight.load<T, kWidth>(at, factor);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] *= factor[k];
      }
      if (bias.data != nullptr) {
        bias.load<T, kWidth>(at, factor);
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
// wanted.
template <class T, int kWidth, int kPacks>
__global__ void __launch_bounds__(kRowThreads<kPacks>, kPacks == kFewSums ? 2 : 1)
    gradients(int64_t rows, int64_t n, const T* grad, const T* x, Statistic mean_of,
              Statistic rstd_of, Vector weight, T* to, Wide<T>* partial) {
  using W = Wide<T>;
  using Row = OwnRow<T, kWidth, kPacks>;
  W weights[kPacks][kWidth] = {}, biases[kPacks][kWidth] = {};
  const int64_t owner = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  Row next_g, next_row;
  if (owner < rows) {
    next_g.load(grad + owner * n, n);
    next_row.load(x + owner * n, n);
  }
  for (int64_t r = owner; r < rows; r += step) {
    const Row g = next_g, row = next_row;
    if (r + step < rows) {  // on their way while this row is worked on
      next_g.load(grad + (r + step) * n, n);
      next_row.load(x + (r + step) * n, n);
    }
    const W mean = load_any<W>(mean_of.data, r, mean_of.key);
    const W rstd = load_any<W>(rstd_of.data, r, rstd_of.key);
    W sum = 0, along = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t at = Row::place(p);
      if (at >= n) continue;
      W factor[kWidth];
      if (weight.data != nullptr) weight.load<T, kWidth>(at, factor);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const W own = widen(g.pack[p].at[k]);
        const W normal = (widen(row.pack[p].at[k]) - mean) * rstd;
        weights[p][k] += own * normal;
        biases[p][k] += own;
        const W h = weight.data != nullptr ? own * factor[k] : own;
        sum += h;
        along += h * normal;
      }
    }
    if (to == nullptr) continue;
    row_sums(sum, along);
    sum /= static_cast<W>(n);
    along /= static_cast<W>(n);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t at = Row::place(p);
      if (at >= n) continue;
      W factor[kWidth];
      if (weight.data != nullptr) weight.load<T, kWidth>(at, factor);
      Pack<T, kWidth> result;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const W own = widen(g.pack[p].at[k]);
        const W normal = (widen(row.pack[p].at[k]) - mean) * rstd;
        const W h = weight.data != nullptr ? own * factor[k] : own;
        result.at[k] = convert<T>((h - sum - normal * along) * rstd);
      }
      *reinterpret_cast<Pack<T, kWidth>*>(to + r * n + at) = result;
    }
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

constexpr int kShares = 8;  // of the owners, for each column

// Column c of the sums of all owners: of the weight below n, of the bias above.
template <class W>
__global__ void __launch_bounds__(32 * kShares)
    add_owners(int64_t owners, int64_t n, const W* partial, Statistic weight, Statistic bias) {
  __shared__ W parts[kShares][32];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  W sum = 0;
  if (column < 2 * n) {
    for (int64_t o = threadIdx.y; o < owners; o += kShares) sum += partial[o * 2 * n + column];
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= 2 * n) return;
  for (int share = 1; share < kShares; ++share) sum += parts[share][threadIdx.x];
  const Statistic& to = column < n ? weight : bias;
  if (to.data != nullptr) store_any(to.data, column < n ? column : column - n, to.key, sum);
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
    const Statistic means(args.mean), rstds(args.rstd);
    with_row_shape<T>(shape, [&](auto width, auto packs) {
      launch(ctx, "native_layer_norm", normalize<T, width(), packs()>, shape.grid, rows, n,
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
    // Sums of columns are kept by a few blocks, of which each has many rows.
    const int most = sums ? 2 * properties(ctx.device.index).multiprocessors : 0;
    const RowShape shape = row_shape<T, kFewSums, kManySums>(rows, n, whole, most);
    if (shape.width == 0) throw sdk::Declined{};
    const Statistic means(args.mean), rstds(args.rstd);
    const Vector weight(args.weight, input.dtype(), wide_of(input.dtype()));
    const Statistic to_weight(for_weight), to_bias(for_bias);
    const int64_t owners = int64_t{shape.grid.blocks.x} * shape.grid.threads.y;
    W* partial = sums ? scratch<W>(ctx, owners * 2 * n) : nullptr;
    with_row_shape<T, kFewSums, kManySums>(shape, [&](auto width, auto packs) {
      launch(ctx, "native_layer_norm_backward", gradients<T, width(), packs()>, shape.grid, rows, n,
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
