// Masks and dropout as bits, for the kernels of compute capability 9.0: one bit per score, which is
// set if the score counts (a bool mask) or its weight is kept (dropout). The bits are in the order
// in which threads hold scores (fragments.cuh): a word has 32 columns of a row, and of column
// 8 k + 2 quad + c of these the bit 8 quad + 2 k + c. Rows are queries and columns keys, or, for
// the gradient, the other way round.
#pragma once

#include <cstdint>

namespace mytorch::cuda::hopper {

// What bits are for.
enum class BitsAre { kNone, kMask, kDropout };

// Strides in words; 0 if the bits are the same for all batches, heads or rows.
struct Bits {
  const uint32_t* data;
  int64_t batch, head, row;

  __device__ const uint32_t* at(int b, int h) const { return data + b * batch + h * head; }
};

// The eight bits of this thread in a word: bit 2 k + c.
__device__ inline uint32_t own_bits(uint32_t word) { return word >> threadIdx.x % 4 * 8; }

// Whether all bits of the warp are set, as in the tiles of a mask that hides padding alone.
template <int kWords>
__device__ inline bool all_set(const uint32_t (&own)[2][kWords]) {
  uint32_t all = 0xff;
#pragma unroll
  for (int i = 0; i < kWords; ++i) all &= own[0][i] & own[1][i];
  return __all_sync(0xffffffffu, all == 0xff);
}

}  // namespace mytorch::cuda::hopper
