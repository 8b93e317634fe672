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

#endif  // __CUDACC__

}  // namespace mytorch::cuda
