// Pinned host memory, through which copies from ordinary host memory to a device go, so that they
// need not be waited for: a buffer is used again when the stream has come past the copy that read
// it.
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

  // A buffer of kChunk bytes that nothing uses.
  Buffer take();
  // For use by others when `stream` has come so far.
  void give_back(const Buffer& buffer, cudaStream_t stream);

 private:
  static constexpr size_t kMost = 8;  // buffers, beyond which a free one is waited for

  std::mutex mutex_;
  std::deque<Buffer> idle_;  // the longest given back first
  size_t made_ = 0;
};

}  // namespace mytorch::cuda
