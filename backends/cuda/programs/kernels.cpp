#include "backends/cuda/programs/kernels.h"

#include <cuda.h>

#include <algorithm>
#include <unordered_map>

#include "backends/cuda/programs/compiler.h"
#include "backends/cuda/runtime/driver.h"
#include "backends/cuda/runtime/settings.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {
namespace {

struct Driver {
  decltype(&cuLibraryLoadData) load;
  decltype(&cuLibraryGetKernel) get_kernel;
  decltype(&cuKernelGetFunction) get_function;
  decltype(&cuLaunchKernel) launch;
  decltype(&cuLaunchKernelEx) launch_with;
  decltype(&cuGetErrorString) error_string;
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) resident;

  Driver() {
    find_driver_function("cuLibraryLoadData", &load);
    find_driver_function("cuLibraryGetKernel", &get_kernel);
    find_driver_function("cuKernelGetFunction", &get_function);
    find_driver_function("cuLaunchKernel", &launch);
    find_driver_function("cuLaunchKernelEx", &launch_with);
    find_driver_function("cuGetErrorString", &error_string);
    find_driver_function("cuOccupancyMaxActiveBlocksPerMultiprocessor", &resident);
  }
};

const Driver& driver() {
  static const Driver all;
  return all;
}

[[noreturn, gnu::cold, gnu::noinline]] void fail(CUresult status, const char* what) {
  const char* text = nullptr;
  driver().error_string(status, &text);
  throw sdk::Error(status == CUDA_ERROR_OUT_OF_MEMORY ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_INTERNAL,
                   std::string(what) + ": " + (text != nullptr ? text : "unknown error"));
}

// Allows loading code during a capture: it is not part of the graph.
class OutsideOfCapture {
 public:
  OutsideOfCapture() { CUDA(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~OutsideOfCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  OutsideOfCapture(const OutsideOfCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

CUresult load_library(const std::string& code, CUlibrary* library) {
  return driver().load(library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
}

}  // namespace

Function load_function(const std::string& text, int32_t device) {
  use_device(device);
  const OutsideOfCapture outside;
  const Properties& p = properties(device);
  const int capability = p.major * 10 + p.minor;
  CUlibrary library = nullptr;
  CUresult status = load_library(compile_cached(text, capability), &library);
  if (status != CUDA_SUCCESS) {
    // An undamaged cache entry may still be unusable for this driver.
    forget(text, capability);
    status = load_library(compile_cached(text, capability), &library);
  }
  if (status != CUDA_SUCCESS) fail(status, "loading a compiled kernel");
  CUkernel kernel = nullptr;
  status = driver().get_kernel(&kernel, library, "kernel");
  if (status != CUDA_SUCCESS) fail(status, "finding a compiled kernel");
  CUfunction function = nullptr;
  status = driver().get_function(&function, kernel);
  if (status != CUDA_SUCCESS) fail(status, "loading a compiled kernel");
  return function;
}

int resident_blocks(Function function, int64_t threads) {
  thread_local std::unordered_map<Function, int> known;
  int& blocks = known[function];
  if (blocks != 0) return blocks;
  int found = 0;
  const CUresult status = driver().resident(&found, function, static_cast<int>(threads), 0);
  if (status != CUDA_SUCCESS) fail(status, "asking for the occupancy of a kernel");
  return blocks = std::max(found, 1);
}

namespace {

const bool overlap = is_enabled("MYTORCH_CUDA_OVERLAP");

// Starts while the previous kernel finishes; the prelude's begin() keeps the order.
[[gnu::noinline]] CUresult launch_overlapping(const mt_ctx& ctx, Function function, dim3 blocks,
                                              dim3 threads, void** pointers) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = blocks.x;
  config.gridDimY = blocks.y;
  config.gridDimZ = blocks.z;
  config.blockDimX = threads.x;
  config.blockDimY = threads.y;
  config.blockDimZ = threads.z;
  config.hStream = reinterpret_cast<CUstream>(stream_of(ctx));
  config.attrs = &attribute;
  config.numAttrs = 1;
  return driver().launch_with(&config, function, pointers, nullptr);
}

}  // namespace

void launch_function(const mt_ctx& ctx, const char* what, Function function, dim3 blocks,
                     dim3 threads, Params& params) {
  void* pointers[] = {params.data()};
  const CUresult status =
      overlap && properties(ctx.device.index).major >= 9
          ? launch_overlapping(ctx, function, blocks, threads, pointers)
          : driver().launch(function, blocks.x, blocks.y, blocks.z, threads.x, threads.y, threads.z,
                            0, reinterpret_cast<CUstream>(stream_of(ctx)), pointers, nullptr);
  if (status != CUDA_SUCCESS) [[unlikely]]
    fail(status, what);
  if (synchronous) queued(ctx, what);
}

}  // namespace mytorch::cuda
