// Offsets of element i of strided operands with collapsed dimensions. Created on the host, passed
// to kernels by value.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "mytorch/backend/iterate.h"

namespace mytorch::cuda {

// Division of numbers below 2^31 by a number known to the host: n / d = (n * factor >> 32) >>
// shift, with one addition in between (Granlund and Montgomery, 1994).
struct Divisor {
  uint32_t by = 1;
  uint32_t factor = 1;
  uint32_t shift = 0;

  Divisor() = default;
  explicit Divisor(uint32_t size) : by(std::max(size, 1u)) {  // 0 elements are never divided
    const uint32_t d = by;
    while (shift < 32 && (uint64_t{1} << shift) < d) ++shift;
    factor = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
#ifdef __CUDACC__
  __device__ uint32_t divide(uint32_t n) const { return (__umulhi(n, factor) + n) >> shift; }
#endif
};

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
