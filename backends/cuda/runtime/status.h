// What CUDA and its libraries answer, turned into errors that say what was asked of them.
#pragma once

#include <cuda_runtime_api.h>

namespace mytorch::cuda {

// Throws sdk::Error(MT_ERROR_INTERNAL) "cudaMemcpyAsync: an illegal memory access was encountered",
// with what CUDA calls sticky (the process cannot use the GPU any more) said as such; out of memory
// has its own status. `what` is the text of the call, or the name of a kernel.
[[noreturn]] void fail(cudaError_t status, const char* what);

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) [[unlikely]]
    fail(status, what);
}

}  // namespace mytorch::cuda

// CUDA(cudaMemcpyAsync(...)): the call, checked.
#define CUDA(call) ::mytorch::cuda::check(call, #call)
