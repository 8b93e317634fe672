// Products that are so small that any decision costs more than the arithmetic.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/gemm/storage.h"

namespace mytorch::cpu::gemm_internal {

// The most multiplications for which plain loops are the fastest (5 x 5 x 5 is faster in the
// microkernel, as measured).
inline constexpr int64_t kTinyProducts = 64;

// Also true for k = 0, with any m and n.
inline bool is_tiny(const Job& job) {
  return job.k == 0 || (job.m <= kTinyProducts && job.n <= kTinyProducts &&
                        job.k <= kTinyProducts && job.m * job.n * job.k <= kTinyProducts);
}

template <class T>
inline void tiny_product(const Job& job) {
  for (int64_t g = 0; g < job.batch; ++g) {
    const T* a = static_cast<const T*>(job.a) + g * job.a_batch;
    const T* b = static_cast<const T*>(job.b) + g * job.b_batch;
    T* c = static_cast<T*>(job.c) + g * job.c_batch;
    const T* bias = static_cast<const T*>(job.bias);
    for (int64_t i = 0; i < job.m; ++i) {
      for (int64_t j = 0; j < job.n; ++j) {
        T* to = c + i * job.c_row + j * job.c_col;
        Compute<T> sum{};
        for (int64_t p = 0; p < job.k; ++p) {
          sum += load_scalar(a[i * job.a_row + p * job.a_k]) *
                 load_scalar(b[p * job.b_k + j * job.b_col]);
        }
        if constexpr (std::is_floating_point_v<Compute<T>>) {
          sum *= static_cast<Compute<T>>(job.alpha);
        }
        if (job.accumulate) sum += load_scalar(*to);
        if (bias != nullptr) sum += load_scalar(bias[i * job.bias_row + j * job.bias_col]);
        if (job.relu && sum < Compute<T>{}) sum = Compute<T>{};
        store_scalar(sum, to);
      }
    }
  }
}

}  // namespace mytorch::cpu::gemm_internal
