// The other operands of normalizations: parameters, statistics, and gradients of parameters.
#pragma once

#include <cstdint>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

using sdk::wanted;

// One number for each channel; optional.
struct PerChannel {
  void* data = nullptr;
  uint32_t key = 0;
  int64_t stride = 0;

  PerChannel() = default;
  explicit PerChannel(const mt_tensor* tensor) {
    if (tensor == nullptr) return;
    const sdk::TensorView x = tensor;
    data = x.raw();
    key = sdk::dtype_key(x.dtype());
    stride = x.ndim() == 0 ? 0 : x.stride(0);
  }
#ifdef __CUDACC__
  template <class W>
  __device__ __forceinline__ W get(int64_t c, W absent) const {
    return data == nullptr ? absent : load_any<W>(data, c * stride, key);
  }
  template <class W>
  __device__ __forceinline__ void put(int64_t c, W value) const {
    if (data != nullptr) store_any(data, c * stride, key, value);
  }
#endif
};

// The gradient of a parameter: contiguous, of any floating-point type. Throws sdk::Declined for
// others.
struct Sums {
  void* data = nullptr;
  uint32_t key = 0;

  explicit Sums(const mt_tensor* tensor) {
    if (tensor == nullptr) return;
    const sdk::TensorView x = tensor;
    if (!x.is_contiguous() || x.is_host()) throw sdk::Declined{};
    data = x.raw();
    key = sdk::dtype_key(x.dtype());
  }
};

// Returns the mean or rstd of each row, in the compute type; NULL if absent. Throws sdk::Declined
// for other types and layouts.
template <class W>
W* statistic(const mt_tensor* tensor) {
  if (tensor == nullptr) return nullptr;
  const sdk::TensorView x = tensor;
  if (!x.is_contiguous() || x.is_host() || !sdk::is_dtype<W>(x.dtype())) throw sdk::Declined{};
  return x.data<W>();
}

#ifdef __CUDACC__

// Whether float32 holds a mean of squares: larger ones are infinite, and in smaller ones, terms
// that vanished may matter.
__device__ __forceinline__ bool holds_square(float square) {
  constexpr float kLeast = 1e-31f, kMost = 3.4e38f;
  return square >= kLeast && square <= kMost;
}

inline constexpr int kShares = 16;  // threads that share the sum of a column

// Adds the partial sums of all owners, column by column: columns below n belong to the weight, the
// others to the bias; `columns` is n or 2 n.
template <class W>
__global__ void __launch_bounds__(32 * kShares)
    add_owners(int64_t owners, int64_t n, int64_t columns, const W* partial, Sums weight,
               Sums bias) {
  __shared__ W parts[kShares][32];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  W sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int64_t o = threadIdx.y; o < owners; o += kShares) sum += partial[o * columns + column];
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int share = 1; share < kShares; ++share) sum += parts[share][threadIdx.x];
  const Sums& to = column < n ? weight : bias;
  if (to.data != nullptr) store_any(to.data, column < n ? column : column - n, to.key, sum);
}

#endif  // __CUDACC__

}  // namespace mytorch::cuda
