// The dynamic shared memory of the emulated device, and copies to it, which are done at once.
#pragma once

#include "backends/cuda/common/pack.cuh"

namespace mytorch::cuda {

inline uint4* dynamic_memory() { return reinterpret_cast<uint4*>(emulated::dynamic_shared()); }

template <class T, int kWidth>
void copy_async(T* to, const T* from, int n) {
  for (int p = threadIdx.x; p < n / kWidth; p += blockDim.x) {
    for (int k = 0; k < kWidth; ++k) to[p * kWidth + k] = from[p * kWidth + k];
  }
}
inline void wait_copies() {}

}  // namespace mytorch::cuda
