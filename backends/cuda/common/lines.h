// Operands split into lines along one dimension: a loop over the lines, and the stride and size of
// a line in each operand.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backends/cuda/common/strided.cuh"
#include "mytorch/backend.h"

namespace mytorch::cuda {

template <int N>
struct Lines {
  Strided<N> loop;  // over the lines
  int64_t step[N] = {};
  int64_t size[N];  // of a line; 1 for a 0-dim operand

  int64_t count() const { return loop.numel; }
};

// Returns the lines of operands whose sizes agree in every other dimension.
template <int N>
Lines<N> make_lines(const std::array<sdk::TensorView, N>& operands, int64_t dim,
                    sdk::Order order = sdk::Order::kMemory) {
  Lines<N> lines;
  const int ndim = operands[0].ndim();
  sdk::check_ndim(static_cast<size_t>(ndim));
  int64_t shape[sdk::kMaxDims];
  int64_t strides[N][sdk::kMaxDims];
  std::array<const int64_t*, N> pointers;
  for (int k = 0; k < N; ++k) {
    pointers[static_cast<size_t>(k)] = strides[k];
    lines.size[k] = 1;
  }
  size_t kept = 0;
  const int along = static_cast<int>(dim < 0 ? dim + ndim : dim);
  for (int d = 0; d < ndim; ++d) {
    for (int k = 0; k < N; ++k) {
      const sdk::TensorView& operand = operands[static_cast<size_t>(k)];
      if (d == along) {
        lines.step[k] = operand.stride(d);
        lines.size[k] = operand.size(d);
      } else {
        strides[k][kept] = operand.stride(d);
      }
    }
    if (d != along) shape[kept++] = operands[0].size(d);
  }
  lines.loop =
      Strided<N>(sdk::StridedLoop<N>(std::span<const int64_t>(shape, kept), pointers, order));
  return lines;
}

}  // namespace mytorch::cuda
