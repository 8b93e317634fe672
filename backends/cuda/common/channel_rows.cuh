// Matrices with a row per place and a column per channel, in passes that sum or change columns:
// NHWC images, and features of tokens. A thread owns the few channels of one 16-byte pack. Blocks
// that share columns take rows in turn, so that all of them read one region of memory at a time. A
// second pass in the opposite order finds in the L2 cache what the first one read last.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

inline constexpr int kChannelThreads = 256;

struct ChannelRows {
  int64_t rows = 0, channels = 0;
  int pieces = 1;  // blocks that share columns
};

// Whether a tensor (N, C, ...), with more than one dimension, is a contiguous matrix of rows of C
// channels, in whole packs of T.
template <class T>
bool is_channel_rows(const sdk::TensorView& x) {
  const int64_t channels = x.size(1);
  if (channels % kPack<T> != 0 || !aligned(x.raw())) return false;
  int64_t expected = channels;  // stride of the innermost of the other dimensions
  for (int d = x.ndim() - 1; d >= 0; --d) {
    if (d == 1) {
      if (x.stride(1) != 1) return false;
      continue;
    }
    if (x.size(d) != 1 && x.stride(d) != expected) return false;
    expected *= x.size(d);
  }
  return true;
}

// Fills in `pieces`.
template <class T>
Grid rows_grid(const mt_ctx& ctx, ChannelRows& at) {
  const int64_t packs = at.channels / kPack<T>;
  const auto across =
      static_cast<unsigned>(std::bit_ceil(static_cast<uint64_t>(packs < 32 ? packs : 32)));
  Grid grid;
  grid.threads = dim3(across, kChannelThreads / across);
  grid.blocks.x = static_cast<unsigned>((packs + across - 1) / across);
  const int64_t busy = 4 * properties(ctx.device.index).multiprocessors;
  const int64_t most = (at.rows + 4 * grid.threads.y - 1) / (4 * grid.threads.y);
  at.pieces =
      static_cast<int>(std::clamp<int64_t>((busy + grid.blocks.x - 1) / grid.blocks.x, 1, most));
  grid.blocks.y = static_cast<unsigned>(at.pieces);
  return grid;
}

#ifdef __CUDACC__

// The thread's pack of channels, its first row, and the distance between its rows.
struct OwnRows {
  int64_t pack, packs, first, step;

  __device__ __forceinline__ OwnRows(const ChannelRows& at, int per_pack)
      : pack(static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x),
        packs(at.channels / per_pack),
        first(static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y),
        step(static_cast<int64_t>(at.pieces) * blockDim.y) {}
  __device__ __forceinline__ bool exist() const { return pack < packs; }
  // The last row of the thread, negative if it has none.
  __device__ __forceinline__ int64_t last(int64_t rows) const {
    return first < rows ? first + (rows - 1 - first) / step * step : -1;
  }
};

// Stores the block's sums of K numbers per channel to partial[piece][channel][K]. Additions are in
// a fixed order. All threads must call it.
template <int K, int N, class W>
__device__ __forceinline__ void put_row_sums(const ChannelRows& at, const W (&sums)[K][N],
                                             double* partial) {
  __shared__ W parts[K * N][kChannelThreads];
  const unsigned own = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int i = 0; i < N; ++i) parts[k * N + i][own] = sums[k][i];
  }
  __syncthreads();
  for (unsigned each = own; each < K * N * blockDim.x; each += kChannelThreads) {
    const unsigned x = each % blockDim.x, i = each / blockDim.x % N, k = each / blockDim.x / N;
    double sum = 0;
    for (unsigned y = 0; y < blockDim.y; ++y) {
      sum += static_cast<double>(parts[k * N + i][y * blockDim.x + x]);
    }
    const int64_t channel = (static_cast<int64_t>(blockIdx.x) * blockDim.x + x) * N + i;
    if (channel < at.channels) partial[(blockIdx.y * at.channels + channel) * K + k] = sum;
  }
}

#endif  // __CUDACC__

}  // namespace mytorch::cuda
