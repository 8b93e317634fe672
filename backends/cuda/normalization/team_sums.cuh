// Sums over the threads of a row.
#pragma once

namespace mytorch::cuda {

#ifdef __CUDACC__

// Sums over the threads of a row, at most kWarps warps, with one barrier. Consecutive calls
// alternate between two buffers: a thread that writes to a buffer knows that all threads have
// passed the barrier of the call in between.
template <int kWarps, class W>
__device__ __forceinline__ void team_sums(W (&sums)[1], int& turn) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sums[0] += __shfl_xor_sync(0xFFFFFFFFu, sums[0], step);
  if (blockDim.x == 32) return;
  __shared__ W parts[2][kWarps];
  W* const own = parts[turn];
  turn ^= 1;
  if (threadIdx.x % 32 == 0) own[threadIdx.x / 32] = sums[0];
  __syncthreads();
  const int warp = threadIdx.x % kWarps;
  sums[0] = warp < static_cast<int>(blockDim.x / 32) ? own[warp] : W(0);
#pragma unroll
  for (int step = kWarps / 2; step > 0; step /= 2) {
    sums[0] += __shfl_xor_sync(0xFFFFFFFFu, sums[0], step);
  }
}

// Two sums at once: each half of a warp adds up one of them.
template <int kWarps, class W>
__device__ __forceinline__ void team_sums(W (&sums)[2], int& turn) {
  const auto add_halves = [](W sum) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    return sum;
  };
  const auto give_to_all = [&](W sum) {
    sums[0] = __shfl_sync(0xFFFFFFFFu, sum, 0);
    sums[1] = __shfl_sync(0xFFFFFFFFu, sum, 16);
  };
  const int half = threadIdx.x / 16 % 2, lane = threadIdx.x % 16;
  W sum = half == 0 ? sums[0] : sums[1];
  sum += __shfl_xor_sync(0xFFFFFFFFu, half == 0 ? sums[1] : sums[0], 16);
  sum = add_halves(sum);
  if (blockDim.x == 32) return give_to_all(sum);
  __shared__ W parts[2][2][kWarps];
  W* const own = parts[turn][half];
  turn ^= 1;
  if (lane == 0) own[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; warp += 16) {
    if (lane + warp < static_cast<int>(blockDim.x / 32)) sum += own[lane + warp];
  }
  give_to_all(add_halves(sum));
}

#endif  // __CUDACC__

}  // namespace mytorch::cuda
