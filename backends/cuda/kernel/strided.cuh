// Where element i of several strided operands of one shape lies, for any number of elements: with
// divisions by multiplication below 2^31 elements, with 64-bit ones above.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backends/cuda/runtime/walk.h"
#include "mytorch/backend/iterate.h"

namespace mytorch::cuda {

inline constexpr int kStridedDims = 16;

template <int N>
struct Strided {
  int64_t numel = 0;
  int32_t ndim = 0;
  int32_t wide = 0;               // 2^31 elements and more
  Divisor divisor[kStridedDims];  // innermost first, as the others
  int64_t size[kStridedDims] = {};
  int64_t stride[kStridedDims][N] = {};

  Strided() = default;
  explicit Strided(const sdk::StridedLoop<N>& loop) : numel(loop.numel()) {
    if (numel == 0) return;
    if (loop.ndim() > kStridedDims) {
      throw sdk::Error(
          MT_ERROR_UNSUPPORTED,
          "strides of more than " + std::to_string(kStridedDims) + " dimensions that do not join");
    }
    ndim = numel == 1 ? 0 : loop.ndim();
    for (int d = 0; d < ndim; ++d) {
      size[d] = loop.shape()[static_cast<size_t>(ndim - 1 - d)];
      for (int k = 0; k < N; ++k) stride[d][k] = loop.stride(k, ndim - 1 - d);
    }
    finish();
  }
  // To be called after sizes have been changed.
  void finish() {
    numel = 1;
    for (int d = 0; d < ndim; ++d) numel *= size[d];
    wide = numel >= int64_t{1} << 31;
    for (int d = 0; d < ndim && !wide; ++d) divisor[d] = Divisor(static_cast<uint32_t>(size[d]));
  }

#ifdef __CUDACC__
  __device__ __forceinline__ void offsets(int64_t i, int64_t (&at)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = 0;
    if (wide) {
      for (int d = 0; d < ndim; ++d) {
        const int64_t outer = i / size[d];
        const int64_t index = i - outer * size[d];
#pragma unroll
        for (int k = 0; k < N; ++k) at[k] += index * stride[d][k];
        i = outer;
      }
      return;
    }
    uint32_t rest = static_cast<uint32_t>(i);
    for (int d = 0; d < ndim; ++d) {
      uint32_t index = rest;
      if (d + 1 < ndim) {
        const uint32_t outer = divisor[d].divide(rest);
        index = rest - outer * divisor[d].by;
        rest = outer;
      }
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += static_cast<int64_t>(index) * stride[d][k];
    }
  }
#endif
};

// A walk over operands that all broadcast to `shape`.
template <int N>
Strided<N> make_strided(std::span<const int64_t> shape,
                        const std::array<sdk::TensorView, N>& operands,
                        sdk::Order order = sdk::Order::kMemory) {
  return Strided<N>(sdk::make_loop<N>(shape, operands, order));
}

}  // namespace mytorch::cuda
