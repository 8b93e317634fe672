#include "backends/cuda/common/counters.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>
#include <vector>

#include "backends/cuda/runtime/capture.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

struct Known {
  void* stream;
  int32_t device;
  uint32_t* counters;
};

constexpr size_t kBytes = kCounters * sizeof(uint32_t);

uint32_t* make() {
  void* data = nullptr;
  CUDA(cudaMalloc(&data, kBytes));
  cudaStream_t own = nullptr;
  CUDA(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
  CUDA(cudaMemsetAsync(data, 0, kBytes, own));
  CUDA(cudaStreamSynchronize(own));
  CUDA(cudaStreamDestroy(own));
  return static_cast<uint32_t*>(data);
}

}  // namespace

uint32_t* counters_of(mt_ctx& ctx) {
  if (is_captured(ctx)) {
    // The graph may run concurrently with the stream on which it was captured.
    const auto zeros_of = zeros_of_graph.load();
    void* known = zeros_of != nullptr ? zeros_of(ctx.device.index, ctx.stream, kBytes) : nullptr;
    if (known != nullptr) return static_cast<uint32_t*>(known);
    void* data = scratch_bytes(ctx, kBytes);
    CUDA(cudaMemsetAsync(data, 0, kBytes, stream_of(ctx)));
    return static_cast<uint32_t*>(data);
  }
  thread_local Known last{};
  if (last.counters != nullptr && last.stream == ctx.stream && last.device == ctx.device.index) {
    return last.counters;
  }
  static std::mutex mutex;
  static auto* const all = new std::vector<Known>;  // few streams; threads may outlive main
  const std::lock_guard<std::mutex> lock(mutex);
  for (const Known& known : *all) {
    if (known.stream == ctx.stream && known.device == ctx.device.index) {
      last = known;
      return last.counters;
    }
  }
  all->push_back({ctx.stream, ctx.device.index, make()});
  last = all->back();
  return last.counters;
}

}  // namespace mytorch::cuda
