#include "backends/cuda/memory/staging.h"

#include "backends/cuda/runtime/status.h"

namespace mytorch::cuda {

Staging::Buffer Staging::take() {
  Buffer buffer;
  bool waits = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      const bool done = cudaEventQuery(idle_.front().event) == cudaSuccess;
      if (done || made_ >= kMost) {
        buffer = idle_.front();
        idle_.pop_front();
        waits = !done;
      }
    }
    if (buffer.data == nullptr) ++made_;
  }
  cudaGetLastError();  // clears "not ready", which is not an error
  if (buffer.data == nullptr) {
    CUDA(cudaHostAlloc(&buffer.data, kChunk, cudaHostAllocPortable));
    CUDA(cudaEventCreateWithFlags(&buffer.event, cudaEventDisableTiming));
  } else if (waits) {
    CUDA(cudaEventSynchronize(buffer.event));
  }
  return buffer;
}

void Staging::give_back(const Buffer& buffer, cudaStream_t stream) {
  const cudaError_t status = cudaEventRecord(buffer.event, stream);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(buffer);
  }
  check(status, "cudaEventRecord");
}

}  // namespace mytorch::cuda
