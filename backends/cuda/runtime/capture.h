// Streams that are being recorded into graphs. What the host may not do meanwhile (wait, copy from
// memory that will not be there) is refused here with words, before CUDA would end the recording.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

#include "mytorch/abi.h"

namespace mytorch::cuda {

namespace internal {
extern std::atomic<int> captures;
uint64_t ask_capture(cudaStream_t stream);
}  // namespace internal

// The number of the graph that the stream's work goes into, 0 where it runs.
inline uint64_t capture_of(cudaStream_t stream) {
  if (internal::captures.load(std::memory_order_relaxed) == 0) [[likely]]
    return 0;
  return internal::ask_capture(stream);
}

// Counts recordings, of any stream.
void count_capture(int change);

// Throws Error(MT_ERROR_UNSUPPORTED) where the context's stream is being recorded: "[nonzero] needs
// the number of elements on the host, but ...".
void check_not_captured(const mt_ctx& ctx, const char* op, const char* needs);
void check_not_captured(cudaStream_t stream, const char* what);

}  // namespace mytorch::cuda
