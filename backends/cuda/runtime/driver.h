// Driver functions, obtained through the runtime so that nothing links against the driver library.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "backends/cuda/runtime/status.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {

template <class F>
void find_driver_function(const char* name, F* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status));
#else
  CUDA(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status));
#endif
  if (status != cudaDriverEntryPointSuccess || found == nullptr) {
    throw sdk::Error(MT_ERROR_INTERNAL, std::string("the driver does not have ") + name);
  }
  *function = reinterpret_cast<F>(found);
}

}  // namespace mytorch::cuda
