// Status codes of CUDA, turned into errors that name the call.
#pragma once

#include <cuda_runtime_api.h>

namespace mytorch::cuda {

// Throws sdk::Error(MT_ERROR_INTERNAL), "cudaMemcpyAsync: an illegal memory access was
// encountered", or MT_ERROR_OUT_OF_MEMORY. For a sticky error, after which the process cannot use
// the GPU, the message says so. `what` is the text of the call or the name of a kernel.
[[noreturn]] void fail(cudaError_t status, const char* what);

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) [[unlikely]]
    fail(status, what);
}

}  // namespace mytorch::cuda

// CUDA(cudaMemcpyAsync(...)) makes the call and checks its status.
#define CUDA(call) ::mytorch::cuda::check(call, #call)
