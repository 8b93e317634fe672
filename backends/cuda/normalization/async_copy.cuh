// Dynamic shared memory, and asynchronous copies to it.
#pragma once

#include <cstdint>

#include "backends/cuda/common/pack.cuh"

namespace mytorch::cuda {

#ifdef __CUDACC__

__device__ __forceinline__ uint4* dynamic_memory() {
  extern __shared__ uint4 storage[];
  return storage;
}

// Starts the asynchronous copy of a row of n elements to shared memory; each thread copies its own
// packs.
template <class T, int kWidth>
__device__ __forceinline__ void copy_async(T* to, const T* from, int n) {
  const int packs = n / kWidth;
  for (int p = threadIdx.x; p < packs; p += blockDim.x) {
    if constexpr (kWidth == 1) {
      to[p] = from[p];
    } else {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                       static_cast<uint32_t>(__cvta_generic_to_shared(to + p * kWidth))),
                   "l"(from + p * kWidth)
                   : "memory");
    }
  }
}
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

#endif  // __CUDACC__

}  // namespace mytorch::cuda
