// What a thread holds of the result of a warpgroup's product with 64 rows: of its rows `row` and
// `row + 8`, with row = 16 * warp + lane / 4, the columns 8 k + 2 * (lane % 4) + c. Value
// 4 k + 2 r + c is that of row `row + 8 r`.
#pragma once

#include <cstdint>

#include "backends/cuda/common/mma.cuh"

namespace mytorch::cuda::hopper {

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Where rows are written. Strides in elements.
struct RowsOut {
  void* data;
  int64_t batch, head, row;

  template <class T>
  __device__ T* at(int b, int h) const {
    return static_cast<T*>(data) + b * batch + h * head;
  }
};

// Writes the rows `row` and `row + 8` of this thread, times a factor of each, unless they are
// past the end. Threads of a quad exchange values, so that each writes 16 bytes.
template <class T, int kWidth>
__device__ void write_rows(T* to, int64_t stride, int row, int rows, const float (&out)[kWidth / 2],
                           const float (&factor)[2]) {
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    T* const line = to + (row + 8 * r) * stride;
    const bool inside = row + 8 * r < rows;
#pragma unroll
    for (int k = 0; k < kWidth / 32; ++k) {
      uint32_t own[4];  // columns 32 k + 8 i + 2 quad
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (4 * k + i) + 2 * r;
        own[i] = pack<T>(out[at] * factor[r], out[at + 1] * factor[r]);
      }
      // A transposition of 4 x 4: in step s, a thread exchanges with the thread quad ^ s.
      uint32_t got[4];
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        // own[quad ^ s] goes to the thread quad ^ s.
        const int at = quad ^ s;
        const uint32_t low = at & 1 ? own[1] : own[0];
        const uint32_t high = at & 1 ? own[3] : own[2];
        const uint32_t given = at & 2 ? high : low;
        const uint32_t received = s == 0 ? given : __shfl_xor_sync(0xffffffffu, given, s);
        got[s] = received;  // columns 32 k + 8 quad + 2 (quad ^ s)
      }
      uint4 line_part;
      const auto part = [&](int i) {
        const int s = quad ^ i;
        const uint32_t low = s & 1 ? got[1] : got[0];
        const uint32_t high = s & 1 ? got[3] : got[2];
        return s & 2 ? high : low;
      };
      line_part.x = part(0);
      line_part.y = part(1);
      line_part.z = part(2);
      line_part.w = part(3);
      if (inside) *reinterpret_cast<uint4*>(line + 32 * k + 8 * quad) = line_part;
    }
  }
}

}  // namespace mytorch::cuda::hopper
