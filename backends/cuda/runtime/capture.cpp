#include "backends/cuda/runtime/capture.h"

#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/runtime/launch.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {
namespace {

struct Listeners {
  std::mutex mutex;
  std::vector<void (*)(uint64_t)> all;
};
Listeners& listeners() {
  static Listeners* const instance = new Listeners;  // threads may outlive main
  return *instance;
}

}  // namespace

std::atomic<void* (*)(int32_t index, void* stream, size_t bytes)> zeros_of_graph{nullptr};

namespace internal {

std::atomic<int> captures{0};

uint64_t ask_capture(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  CUDA(cudaStreamGetCaptureInfo(stream, &status, &id));
  return status == cudaStreamCaptureStatusNone ? 0 : id;
}

}  // namespace internal

uint64_t any_capture_of(const mt_ctx& ctx) { return internal::ask_capture(stream_of(ctx)); }

void at_end_of_graph(void (*fn)(uint64_t graph)) {
  const std::scoped_lock lock(listeners().mutex);
  listeners().all.push_back(fn);
}

void end_of_graph(uint64_t graph) {
  const std::scoped_lock lock(listeners().mutex);
  for (const auto fn : listeners().all) fn(graph);
}

void count_capture(int change) { internal::captures.fetch_add(change); }

void check_not_captured(cudaStream_t stream, const char* what) {
  if (capture_of(stream) == 0) return;
  throw sdk::Error(MT_ERROR_UNSUPPORTED,
                   std::string(what) +
                       ", but the stream is being captured into a graph and its work has not run: "
                       "do this before the capture or after a replay");
}

void check_not_captured(const mt_ctx& ctx, const char* op, const char* needs) {
  check_not_captured(stream_of(ctx), ("[" + std::string(op) + "] " + needs).c_str());
}

}  // namespace mytorch::cuda
