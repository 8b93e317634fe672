// Prefetching of rows: while a row is processed, the next ones are copied asynchronously to shared
// memory. Each thread copies and reads only its own packs, so threads do not wait for each other.
#pragma once

#include <cstdint>

#include "backends/cuda/common/rows.cuh"

namespace mytorch::cuda {

// How many rows of each operand a thread has loaded or in flight. 1 if packs are not 16 bytes or
// too many: rows are then loaded by fetch().
template <class T, int kWidth, int kPacks, int kOperands>
inline constexpr int kPrefetchedRows = kWidth != kPack<T> || kPacks* kOperands > 12 ? 1
                                       : kPacks* kOperands > 3                      ? 2
                                                                                    : 3;
// Returns the shared memory that a block needs for prefetched rows.
template <class T, int kWidth, int kPacks, int kOperands>
size_t prefetch_bytes(const Grid& grid) {
  constexpr int kRows = kPrefetchedRows<T, kWidth, kPacks, kOperands>;
  return kRows == 1 ? 0 : size_t{16} * kRows * kPacks * kOperands * grid.threads.x * grid.threads.y;
}

#ifdef __CUDACC__

// Rows of kOperands tensors; `kFull` as in OwnRow. Each fetch() starts the copy of the next row;
// each take() returns the oldest fetched one.
template <class T, int kWidth, int kPacks, int kOperands, bool kFull = false,
          int kCount = kPrefetchedRows<T, kWidth, kPacks, kOperands>>
class RowPrefetcher {
 public:
  using Row = OwnRow<T, kWidth, kPacks, kFull>;
  static constexpr int kRows = kCount;

  __device__ __forceinline__ explicit RowPrefetcher(int64_t n) : n_(n) {
    extern __shared__ uint4 storage[];
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
    own_ = static_cast<uint32_t>(__cvta_generic_to_shared(storage + thread));
    apart_ = 16 * blockDim.x * blockDim.y;
  }
  // `live`: the row exists.
  __device__ __forceinline__ void fetch(const T* const (&rows)[kOperands], bool live) {
#pragma unroll
    for (int o = 0; o < kOperands; ++o) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (live && Row::holds(p, n_)) {
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place(in_, o, p)),
                       "l"(rows[o] + Row::place(p))
                       : "memory");
        }
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    in_ = in_ + 1 == kRows ? 0 : in_ + 1;
  }
  __device__ __forceinline__ void take(Row (&rows)[kOperands]) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kRows - 1) : "memory");
#pragma unroll
    for (int o = 0; o < kOperands; ++o) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (!Row::holds(p, n_)) continue;
        auto& bits = *reinterpret_cast<uint4*>(&rows[o].pack[p]);
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                     : "r"(place(out_, o, p))
                     : "memory");
      }
    }
    out_ = out_ + 1 == kRows ? 0 : out_ + 1;
  }

 private:
  __device__ __forceinline__ uint32_t place(int row, int operand, int pack) const {
    return own_ + static_cast<uint32_t>((row * kOperands + operand) * kPacks + pack) * apart_;
  }

  int64_t n_;
  uint32_t own_, apart_;
  int in_ = 0, out_ = 0;
};

template <class T, int kWidth, int kPacks, int kOperands, bool kFull>
class RowPrefetcher<T, kWidth, kPacks, kOperands, kFull, 1> {
 public:
  using Row = OwnRow<T, kWidth, kPacks, kFull>;
  static constexpr int kRows = 1;

  __device__ __forceinline__ explicit RowPrefetcher(int64_t n) : n_(n) {}
  __device__ __forceinline__ void fetch(const T* const (&rows)[kOperands], bool live) {
#pragma unroll
    for (int o = 0; o < kOperands; ++o) {
      if (live) rows_[o].load(rows[o], n_);
    }
  }
  __device__ __forceinline__ void take(Row (&rows)[kOperands]) {
#pragma unroll
    for (int o = 0; o < kOperands; ++o) rows[o] = rows_[o];
  }

 private:
  int64_t n_;
  Row rows_[kOperands];
};

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
