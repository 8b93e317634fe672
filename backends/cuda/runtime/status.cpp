#include "backends/cuda/runtime/status.h"

#include <string>

#include "mytorch/backend/error.h"

namespace mytorch::cuda {
namespace {

// After one of these, every CUDA call of this process fails.
bool is_sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

}  // namespace

void fail(cudaError_t status, const char* what) {
  cudaGetLastError();  // clears the error for the next call
  std::string message = what;
  message.resize(std::min(message.find('('), message.size()));
  message += std::string(": ") + cudaGetErrorString(status);
  if (is_sticky(status)) {
    message +=
        "; this process can no longer use the GPU. The cause may be an earlier operator: "
        "MYTORCH_CUDA_SYNC=1 names it";
  }
  const bool memory = status == cudaErrorMemoryAllocation;
  throw sdk::Error(memory ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_INTERNAL, message);
}

}  // namespace mytorch::cuda
