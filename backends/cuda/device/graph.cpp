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

// A stream that is a part of a capture, with its counters (common/counters.h), once it needs them.
struct Branch {
  void* stream;
  void* counters = nullptr;
};

// A capture in progress, or what it has become. It has the graph's id, because CUDA does not report
// the id of a capture that failed.
struct Captured {
  uint64_t id;
  std::vector<Branch> branches;  // the first one: on which the capture began
  cudaGraphExec_t executable = nullptr;
};
struct State {
  std::mutex mutex;
  std::vector<Captured> open;

  Captured* find(uint64_t id) {
    const auto found =
        std::find_if(open.begin(), open.end(), [&](const Captured& each) { return each.id == id; });
    return found != open.end() ? &*found : nullptr;
  }
};
State& state() {
  static State* const instance = new State;  // threads may outlive main
  return *instance;
}

Captured take_open(void* stream) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = std::find_if(s.open.begin(), s.open.end(), [&](const Captured& each) {
    return each.branches[0].stream == stream;
  });
  if (found == s.open.end()) throw sdk::Error(MT_ERROR_VALUE, "the stream is not being captured");
  Captured taken = std::move(*found);
  s.open.erase(found);
  return taken;
}

void forget(int32_t index, const Captured& captured) {
  for (const Branch& branch : captured.branches) {
    if (branch.counters != nullptr) gpu(index).release(branch.counters, branch.stream);
  }
  gpu(index).pool().end_of_graph(captured.id);
  pinned().end_of_graph(captured.id);
  end_of_graph(captured.id);
}

void* zeros_of(int32_t index, void* stream, size_t bytes) {
  const uint64_t id = capture_of(stream_from(stream));
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  Captured* captured = s.find(id);
  if (captured == nullptr) return nullptr;
  for (Branch& branch : captured->branches) {
    if (branch.stream != stream) continue;
    if (branch.counters != nullptr) return branch.counters;
    branch.counters = gpu(index).allocate(bytes, stream);
    if (branch.counters == nullptr) throw sdk::Error(MT_ERROR_OUT_OF_MEMORY, "the device is full");
    CUDA(cudaMemsetAsync(branch.counters, 0, bytes, stream_from(stream)));
    return branch.counters;
  }
  return nullptr;
}

}  // namespace

// Uses CUDA's relaxed mode: memory, plans and code may be created during a capture, because that
// work never uses the captured stream.
int begin_graph(void*, int32_t index, void* stream) {
  zeros_of_graph = &zeros_of;
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
    s.open.push_back({capture_of(stream_from(stream)), {{stream}}});
  });
}

void* end_graph(void*, int32_t index, void* stream) {
  return object_or_null([&]() -> void* {
    use_device(index);
    Captured captured = take_open(stream);
    cudaGraph_t graph = nullptr;
    cudaError_t status = cudaStreamEndCapture(stream_from(stream), &graph);
    const char* what = "cudaStreamEndCapture";
    count_capture(-1);
    gpu(index).pool().end_capture();
    if (status == cudaSuccess) {
      status = cudaGraphInstantiate(&captured.executable, graph, 0);
      what = "cudaGraphInstantiate";
    }
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (status != cudaSuccess) {
      forget(index, captured);
      fail(status, what);
    }
    // Without this, the first launch uploads the graph. If it fails, the first launch reports the
    // error.
    if (cudaGraphUpload(captured.executable, stream_from(stream)) != cudaSuccess) {
      cudaGetLastError();
    }
    return new Captured(std::move(captured));
  });
}

int launch_graph(void*, int32_t index, void* graph, void* stream) {
  return answer([&] {
    use_device(index);
    const auto& captured = *static_cast<const Captured*>(graph);
    CUDA(cudaGraphLaunch(captured.executable, stream_from(stream)));
    for (const Branch& branch : captured.branches) {
      if (stream != branch.stream) follow_faults(stream, branch.stream);
    }
    if (synchronous) wait_for(stream_from(stream));
  });
}

// CUDA waits for a running graph before it is destroyed, so its memory is free afterwards.
void destroy_graph(void*, int32_t index, void* graph) {
  answer([&] {
    use_device(index);
    auto* captured = static_cast<Captured*>(graph);
    const cudaError_t status = cudaGraphExecDestroy(captured->executable);
    forget(index, *captured);
    delete captured;
    check(status, "cudaGraphExecDestroy");
  });
}

void note_branch(void* stream) {
  const uint64_t id = capture_of(stream_from(stream));
  if (id == 0) return;
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  Captured* captured = s.find(id);
  if (captured == nullptr) return;
  auto& branches = captured->branches;
  if (std::none_of(branches.begin(), branches.end(),
                   [&](const Branch& each) { return each.stream == stream; })) {
    branches.push_back({stream});
  }
}

}  // namespace mytorch::cuda
