// The gradient of gelu after a linear layer and, in the same pass, of the layer's bias.
#include <cstdint>
#include <string_view>

#include "backends/cuda/common/channel_rows.cuh"
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/matrix/product.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/linear_gelu_backward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// The derivative of gelu. For 16-bit types `kFast` replaces tanh by an exponential, whose error is
// some 1e-7.
template <bool kTanh, bool kFast, class W>
__device__ __forceinline__ W gelu_slope(W x) {
  // Here both forms are 1 or 0 to the last bit, and their terms would overflow.
  constexpr W kFar = 40;
  if (x > kFar || x < -kFar) return x > 0 ? W(1) : W(0);
  if constexpr (kTanh) {
    constexpr W kScale = W(0.79788456080286535588), kCube = W(0.044715);
    const W square = x * x;
    const W z = kScale * x * (1 + kCube * square);
    W t;
    if constexpr (kFast) {
      t = 1 - __fdividef(2.0f, 1 + __expf(2 * z));
    } else {
      t = tanh(z);
    }
    return W(0.5) * (1 + t) + W(0.5) * x * (1 - t * t) * kScale * (1 + 3 * kCube * square);
  } else {
    constexpr W kRoot = W(0.70710678118654752440), kDensity = W(0.39894228040143267794);
    W bell;
    if constexpr (kFast) {
      bell = __expf(W(-0.5) * x * x);
    } else {
      bell = exp(W(-0.5) * x * x);
    }
    return W(0.5) * (1 + erf(x * kRoot)) + x * kDensity * bell;
  }
}

// `to` and `partial` are optional.
template <class T, bool kTanh>
__global__ void __launch_bounds__(kChannelThreads)
    gelu_rows(ChannelRows at, const T* __restrict__ grad, const T* __restrict__ linear,
              T* __restrict__ to, double* __restrict__ partial) {
  constexpr int N = kPack<T>;
  using W = Wide<T>;
  using P = Pack<T, N>;
  const OwnRows own(at, N);
  W sums[1][N] = {};
  if (own.exist()) {
    const P* from = reinterpret_cast<const P*>(linear) + own.pack;
    const P* from_grad = reinterpret_cast<const P*>(grad) + own.pack;
    P* result = reinterpret_cast<P*>(to) + own.pack;
#pragma unroll 2
    for (int64_t row = own.first; row < at.rows; row += own.step) {
      const P g = from_grad[row * own.packs];
      P pack = from[row * own.packs];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const W value = widen(g.at[i]) * gelu_slope<kTanh, is_half<T>>(widen(pack.at[i]));
        sums[0][i] += value;
        pack.at[i] = convert<T>(value);
      }
      if (to != nullptr) result[row * own.packs] = pack;
    }
  }
  if (partial != nullptr) put_row_sums(at, sums, partial);
}

constexpr int kAdders = 16;  // threads that share a channel

template <class T>
__global__ void __launch_bounds__(32 * kAdders)
    add_pieces(ChannelRows at, const double* partial, T* to) {
  __shared__ double parts[kAdders][32];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  double sum = 0;
  if (c < at.channels) {
#pragma unroll 4
    for (int p = threadIdx.y; p < at.pieces; p += kAdders) sum += partial[p * at.channels + c];
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= at.channels) return;
  for (int share = 1; share < kAdders; ++share) sum += parts[share][threadIdx.x];
  to[c] = convert<T>(static_cast<Wide<T>>(sum));
}

const char* supports(const mt_args_linear_gelu_backward& args) {
  const std::string_view approximate = args.approximate;
  return approximate == "none" || approximate == "tanh" ? nullptr : "approximate";
}

// Operands are contiguous and of one type.
void backward(mt_ctx& ctx, const mt_args_linear_gelu_backward& args) {
  const TensorView linear = args.linear, grad = args.grad_output;
  const TensorView out = sdk::wanted(args.output_mask, 0, args.grad_linear);
  const TensorView bias = sdk::wanted(args.output_mask, 1, args.grad_bias);
  if (linear.numel() == 0) throw sdk::Declined{};
  const bool tanh = std::string_view(args.approximate) == "tanh";
  visit_floating(linear.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ChannelRows rows{linear.numel() / linear.size(-1), linear.size(-1)};
    if (rows.channels % kPack<T> != 0 || !aligned(linear.raw()) || !aligned(grad.raw()) ||
        (out && !aligned(out.raw()))) {
      throw sdk::Declined{};
    }
    const Grid grid = rows_grid<T>(ctx, rows);
    double* partial = bias ? scratch<double>(ctx, rows.channels * rows.pieces) : nullptr;
    launch(ctx, "linear_gelu_backward", tanh ? gelu_rows<T, true> : gelu_rows<T, false>, grid, rows,
           grad.data<const T>(), linear.data<const T>(), out ? out.data<T>() : nullptr, partial);
    if (!bias) return;
    const Grid adders{dim3(static_cast<unsigned>((rows.channels + 31) / 32)), dim3(32, kAdders)};
    launch(ctx, "linear_gelu_backward", add_pieces<T>, adders, rows,
           static_cast<const double*>(partial), bias.data<T>());
  });
}

}  // namespace

void register_linear_gelu_backward(std::vector<mt_kernel_entry>& kernels) {
  kernels.push_back(sdk::kernel<&backward, &supports>("rows"));
}

}  // namespace mytorch::cuda
