#include "backends/cuda/runtime/launch.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/runtime/capture.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/settings.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {
namespace {

Properties read_properties(int index) {
  const auto attribute = [index](cudaDeviceAttr which) {
    int value = 0;
    CUDA(cudaDeviceGetAttribute(&value, which, index));
    return value;
  };
  Properties p;
  p.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  p.threads = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  p.shared = static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  p.l2 = static_cast<size_t>(attribute(cudaDevAttrL2CacheSize));
  p.major = attribute(cudaDevAttrComputeCapabilityMajor);
  p.minor = attribute(cudaDevAttrComputeCapabilityMinor);
  return p;
}

}  // namespace

const bool synchronous = is_enabled("MYTORCH_CUDA_SYNC");

namespace internal {
thread_local constinit int32_t current_device = -1;

void change_device(int32_t index) {
  CUDA(cudaSetDevice(index));
  current_device = index;
}

void launch(mt_ctx& ctx, const char* name, const void* kernel, const Grid& grid, void** params) {
  use_device(ctx);
  check(cudaLaunchKernel(kernel, grid.blocks, grid.threads, params, grid.shared, stream_of(ctx)),
        name);
  if (synchronous) queued(ctx, name);
}
}  // namespace internal

const Properties& properties(int32_t index) {
  static const std::vector<Properties>* const all = [] {
    int count = 0;
    CUDA(cudaGetDeviceCount(&count));
    auto* list = new std::vector<Properties>;
    for (int i = 0; i < count; ++i) list->push_back(read_properties(i));
    return list;
  }();
  return (*all)[static_cast<size_t>(index)];
}

void queued(const mt_ctx& ctx, const char* what) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) [[unlikely]]
    fail(status, what);
  if (!synchronous || capture_of(stream_of(ctx)) != 0) return;
  check(cudaStreamSynchronize(stream_of(ctx)), what);
  if (const std::string fault = take_fault(ctx.stream); !fault.empty()) {
    throw sdk::Error(MT_ERROR_VALUE, fault);
  }
}

void allow_shared(const mt_ctx& ctx, const void* kernel, size_t bytes) {
  thread_local std::map<std::pair<const void*, int32_t>, size_t> allowed;
  size_t& known = allowed[{kernel, ctx.device.index}];
  if (known >= bytes) return;
  use_device(ctx);
  CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(bytes)));
  known = bytes;
}

Grid grid_for(const mt_ctx& ctx, int64_t n, int threads, int waves) {
  const Properties& p = properties(ctx.device.index);
  const int64_t most = int64_t{p.multiprocessors} * std::max(1, p.threads / threads) * waves;
  const int64_t blocks = std::clamp<int64_t>((n + threads - 1) / threads, 1, most);
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(blocks));
  grid.threads = dim3(static_cast<unsigned>(threads));
  return grid;
}

void* scratch_bytes(mt_ctx& ctx, size_t bytes) {
  void* data = ctx.scratch(&ctx, bytes);
  if (data == nullptr) {
    throw sdk::Error(MT_ERROR_OUT_OF_MEMORY, "no " + std::to_string(bytes) +
                                                 " bytes of scratch memory available on cuda:" +
                                                 std::to_string(ctx.device.index));
  }
  return data;
}

}  // namespace mytorch::cuda
