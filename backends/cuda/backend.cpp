// The backend for NVIDIA GPUs: kernels, cuBLASLt and cuDNN behind the contract.
#include <cuda_runtime_api.h>

#include <string>

#include "backends/cuda/device/device.h"
#include "backends/cuda/fused/fused.h"
#include "backends/cuda/programs/compile.h"
#include "backends/cuda/registry.h"
#include "mytorch/backend/kernel.h"

#ifndef MYTORCH_BACKEND_INIT
#define MYTORCH_BACKEND_INIT mt_backend_init
#endif

namespace mytorch::cuda {
namespace {

// Returns why this process cannot use a GPU, or "" if it can.
std::string why_not() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return "";
  cudaGetLastError();  // clears the error for the next call
  if (status == cudaErrorInsufficientDriver) {
    return "no NVIDIA driver, or one older than this CUDA runtime";
  }
  if (status == cudaSuccess || status == cudaErrorNoDevice) return "no NVIDIA GPU is visible";
  return std::string("CUDA does not start: ") + cudaGetErrorString(status);
}

}  // namespace
}  // namespace mytorch::cuda

extern "C" MT_EXPORT int MYTORCH_BACKEND_INIT(const mt_host* host, mt_backend* backend) {
  using namespace mytorch;
  if (const std::string reason = cuda::why_not(); !reason.empty()) {
    host->set_error(MT_DECLINED, reason.c_str());
    return MT_DECLINED;
  }
  return sdk::fill_backend(host, backend,
                           {.name = "cuda",
                            .version = "1.0",
                            .device_type = "cuda",
                            .kernels = cuda::all_kernels(),
                            .compile = &sdk::compile_entry<&cuda::compile_program>,
                            .compile_fused = &sdk::compile_fused_entry<&cuda::compile_fused>,
                            .flags = MT_BACKEND_COMPLEX,
                            .describe = &cuda::describe,
                            .device = &cuda::device_ops()});
}
