#include "backends/cuda/device/graph.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "backends/cuda/device/answer.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/pinned.h"
#include "backends/cuda/runtime/capture.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

struct Captured {
  cudaGraphExec_t executable;
  uint64_t id;
  void* stream;  // on which the graph was captured
};

// The captures in progress, with their graphs' ids: CUDA does not report the id of a capture that
// failed.
struct Open {
  void* stream;
  uint64_t id;
};
struct State {
  std::mutex mutex;
  std::vector<Open> open;
};
State& state() {
  static State* const instance = new State;  // threads may outlive main
  return *instance;
}

uint64_t take_id(void* stream) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = std::find_if(s.open.begin(), s.open.end(),
                                  [&](const Open& each) { return each.stream == stream; });
  if (found == s.open.end()) throw sdk::Error(MT_ERROR_VALUE, "the stream is not being captured");
  const uint64_t id = found->id;
  s.open.erase(found);
  return id;
}

void forget(int32_t index, uint64_t id) {
  gpu(index).pool().end_of_graph(id);
  pinned().end_of_graph(id);
}

cudaStream_t stream_from(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

// Uses CUDA's relaxed mode: memory, plans and code may be created during a capture, because that
// work never uses the captured stream.
int begin_graph(void*, int32_t index, void* stream) {
  return answer([&] {
    use_device(index);
    count_capture(1);
    gpu(index).pool().begin_capture();
    const cudaError_t status =
        cudaStreamBeginCapture(stream_from(stream), cudaStreamCaptureModeRelaxed);
    if (status != cudaSuccess) {
      count_capture(-1);
      gpu(index).pool().end_capture();
      fail(status, "cudaStreamBeginCapture");
    }
    State& s = state();
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.open.push_back({stream, capture_of(stream_from(stream))});
  });
}

void* end_graph(void*, int32_t index, void* stream) {
  return object_or_null([&]() -> void* {
    use_device(index);
    const uint64_t id = take_id(stream);
    cudaGraph_t graph = nullptr;
    cudaError_t status = cudaStreamEndCapture(stream_from(stream), &graph);
    const char* what = "cudaStreamEndCapture";
    count_capture(-1);
    gpu(index).pool().end_capture();
    cudaGraphExec_t executable = nullptr;
    if (status == cudaSuccess) {
      status = cudaGraphInstantiate(&executable, graph, 0);
      what = "cudaGraphInstantiate";
    }
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (status != cudaSuccess) {
      forget(index, id);
      fail(status, what);
    }
    // Without this, the first launch uploads the graph. If it fails, the first launch reports the
    // error.
    if (cudaGraphUpload(executable, stream_from(stream)) != cudaSuccess) cudaGetLastError();
    return new Captured{executable, id, stream};
  });
}

int launch_graph(void*, int32_t index, void* graph, void* stream) {
  return answer([&] {
    use_device(index);
    const auto& captured = *static_cast<const Captured*>(graph);
    CUDA(cudaGraphLaunch(captured.executable, stream_from(stream)));
    if (stream != captured.stream) follow_faults(stream, captured.stream);
    if (synchronous) wait_for(stream_from(stream));
  });
}

// CUDA waits for a running graph before it is destroyed, so its memory is free afterwards.
void destroy_graph(void*, int32_t index, void* graph) {
  answer([&] {
    use_device(index);
    auto* captured = static_cast<Captured*>(graph);
    const cudaError_t status = cudaGraphExecDestroy(captured->executable);
    forget(index, captured->id);
    delete captured;
    check(status, "cudaGraphExecDestroy");
  });
}

}  // namespace mytorch::cuda
