// Pinned buffers through which copies from pageable host memory to a device go, so that the host
// need not wait for them. A buffer is reused once the stream has passed the copy that read it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <mutex>

namespace mytorch::cuda {

class Staging {
 public:
  static constexpr size_t kChunk = size_t{4} << 20;

  struct Buffer {
    void* data = nullptr;
    cudaEvent_t event = nullptr;
  };

  // Returns an unused buffer of kChunk bytes.
  Buffer take();
  // Returns a buffer to the pool, for reuse once the work queued on `stream` so far is done.
  void give_back(const Buffer& buffer, cudaStream_t stream);

 private:
  static constexpr size_t kMost = 8;  // buffers; beyond this limit, take() waits for one

  std::mutex mutex_;
  std::deque<Buffer> idle_;  // the one returned first in front
  size_t made_ = 0;
};

}  // namespace mytorch::cuda
