// The device's side of strided loops. The host plans a loop with sdk::StridedLoop (dimensions
// sorted and collapsed) and passes it to a kernel by value, in one of three forms:
//
//   Strided<N>            any number of elements, up to 16 dimensions
//   Lines<N>              the same over the lines along one dimension
//   OffsetCalculator<N>   fewer than 2^31 elements and few dimensions: the host splits larger loops
//
// offsets(i, at) gives the offset of element i in each operand.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "backends/cuda/common/divisor.h"
#include "mytorch/backend/iterate.h"

namespace mytorch::cuda {

// ---- any number of elements

inline constexpr int kStridedDims = 16;

namespace internal {
[[noreturn]] inline void refuse_strides() {
  throw sdk::Error(MT_ERROR_UNSUPPORTED, "strides of more than " + std::to_string(kStridedDims) +
                                             " dimensions that cannot be collapsed");
}
}  // namespace internal

template <int N>
struct Strided {
  int64_t numel = 0;
  int32_t ndim = 0;
  int32_t wide = 0;               // 2^31 elements or more
  Divisor divisor[kStridedDims];  // innermost first, like size and stride
  int64_t size[kStridedDims] = {};
  int64_t stride[kStridedDims][N] = {};

  Strided() = default;
  explicit Strided(const sdk::StridedLoop<N>& loop) : numel(loop.numel()) {
    if (numel == 0) return;
    if (loop.ndim() > kStridedDims) internal::refuse_strides();
    ndim = numel == 1 ? 0 : loop.ndim();
    for (int d = 0; d < ndim; ++d) {
      size[d] = loop.shape()[static_cast<size_t>(ndim - 1 - d)];
      for (int k = 0; k < N; ++k) stride[d][k] = loop.stride(k, ndim - 1 - d);
    }
    finish();
  }
  // Recomputes numel and the divisors. Call this after changing sizes.
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
#pragma unroll 1  // each division of 64 bits, which is long, waits for the one before
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

// A loop over operands that all broadcast to `shape`.
template <int N>
Strided<N> make_strided(std::span<const int64_t> shape,
                        const std::array<sdk::TensorView, N>& operands,
                        sdk::Order order = sdk::Order::kMemory) {
  return Strided<N>(sdk::make_loop<N>(shape, operands, order));
}

// Operands split into lines along one dimension: a loop over the first elements of the lines, and
// the stride and the size of a line in each operand.
template <int N>
struct Lines {
  Strided<N> loop;
  int64_t step[N] = {};
  int64_t size[N];  // 1 for a 0-dim operand

  Lines() = default;
  explicit Lines(const sdk::Lines<N>& lines) : loop(lines.loop) {
    std::copy(lines.step.begin(), lines.step.end(), step);
    std::copy(lines.size.begin(), lines.size.end(), size);
  }
  int64_t count() const { return loop.numel; }
};

// ---- fewer than 2^31 elements

// N operands with at most kDims collapsed dimensions. Strides are in elements.
template <int N, int kDims>
struct OffsetCalculator {
  uint32_t numel = 0;  // below 2^31: the host splits larger calls
  int32_t ndim = 0;
  Divisor size[kDims];       // innermost first
  int64_t stride[kDims][N];  // innermost first

#ifdef __CUDACC__
  // Computes the offsets of the element with linear index i.
  __device__ void offsets(uint32_t i, int64_t (&at)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = 0;
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      if (d == ndim) break;
      const uint32_t outer = size[d].divide(i);
      const int64_t index = i - outer * size[d].by;
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += index * stride[d][k];
      i = outer;
    }
  }
#endif
};

inline constexpr int64_t kMaxPart = int64_t{1} << 30;  // elements of a part

// Splits a loop into parts of at most `most` elements. Excess dimensions and sizes are iterated on
// the host. Calls f(const OffsetCalculator<N, kDims>&, const std::array<int64_t, N>& offsets) for
// each part; `offsets`, in elements, are those of its first element.
template <int kDims, int N, class F>
void for_each_part(const sdk::StridedLoop<N>& loop, F&& f, int64_t most = kMaxPart) {
  if (loop.numel() == 0) return;
  OffsetCalculator<N, kDims> part;
  part.numel = 1;
  int outer = loop.ndim();  // dimensions iterated on the host
  while (outer > 0 && part.ndim < kDims && loop.shape()[outer - 1] <= most / part.numel) {
    const uint32_t size = static_cast<uint32_t>(loop.shape()[--outer]);
    part.size[part.ndim] = Divisor(size);
    for (int k = 0; k < N; ++k) part.stride[part.ndim][k] = loop.stride(k, outer);
    part.numel *= size;
    ++part.ndim;
  }
  // The dimension that was too large, in chunks that fit.
  int64_t chunk = 1;
  if (outer > 0 && part.ndim < kDims) {
    chunk = std::min(most / part.numel, loop.shape()[outer - 1]);
  }
  const bool cuts = chunk > 1;
  const OffsetCalculator<N, kDims> inner = part;
  std::array<int64_t, sdk::kMaxDims> index{};
  for (;;) {
    std::array<int64_t, N> at{};
    for (int d = 0; d < outer; ++d) {
      for (int k = 0; k < N; ++k) at[k] += index[d] * loop.stride(k, d);
    }
    if (cuts) {
      const int64_t n = std::min(chunk, loop.shape()[outer - 1] - index[outer - 1]);
      part = inner;
      part.size[part.ndim] = Divisor(static_cast<uint32_t>(n));
      for (int k = 0; k < N; ++k) part.stride[part.ndim][k] = loop.stride(k, outer - 1);
      part.numel *= static_cast<uint32_t>(n);
      ++part.ndim;
    }
    f(static_cast<const OffsetCalculator<N, kDims>&>(part),
      static_cast<const std::array<int64_t, N>&>(at));
    int d = outer - 1;
    for (; d >= 0; --d) {
      index[d] += d == outer - 1 ? chunk : 1;
      if (index[d] < loop.shape()[d]) break;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace mytorch::cuda
