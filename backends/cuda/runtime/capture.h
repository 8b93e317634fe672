// Streams that are being captured into graphs. Operations that a capture does not allow (waiting,
// copying from memory that will be gone at replay) are refused here with a clear message, before
// CUDA invalidates the capture.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mytorch/abi.h"

namespace mytorch::cuda {

namespace internal {
extern std::atomic<int> captures;
uint64_t ask_capture(cudaStream_t stream);
}  // namespace internal

// Returns the id of the graph into which the stream is being captured, or 0 if it is not.
inline uint64_t capture_of(cudaStream_t stream) {
  if (internal::captures.load(std::memory_order_relaxed) == 0) [[likely]]
    return 0;
  return internal::ask_capture(stream);
}

// Like capture_of(), also of captures that the application began.
uint64_t any_capture_of(const mt_ctx& ctx);
inline bool is_captured(const mt_ctx& ctx) { return any_capture_of(ctx) != 0; }

// Calls `fn` with the id of each of our graphs after its last replay, once it is destroyed. For
// what replays read beside memory of the pool. The end of an application's graph is not known.
void at_end_of_graph(void (*fn)(uint64_t graph));
void end_of_graph(uint64_t graph);

// Returns memory of the graph that a stream is being captured into, the same for all calls on this
// stream. Each replay sets it to 0 before its first use. NULL if the application captures by
// itself. Set by the first capture (device/graph.cpp), whose graph keeps the memory.
extern std::atomic<void* (*)(int32_t index, void* stream, size_t bytes)> zeros_of_graph;

// Adds `change` to the number of captures in progress, on any stream.
void count_capture(int change);

// Throws Error(MT_ERROR_UNSUPPORTED) if the stream is being captured: "[nonzero] needs the number
// of elements on the host, but ...".
void check_not_captured(const mt_ctx& ctx, const char* op, const char* needs);
void check_not_captured(cudaStream_t stream, const char* what);

}  // namespace mytorch::cuda
