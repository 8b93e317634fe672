#include "backends/cuda/device/pinned.h"

#include <algorithm>
#include <bit>

#include "backends/cuda/device/gpu.h"
#include "backends/cuda/runtime/capture.h"
#include "backends/cuda/runtime/status.h"

namespace mytorch::cuda {

// Block sizes are powers of two, so that blocks are reused for similar sizes: allocating and
// pinning 4 MiB takes about a millisecond.
void* Pinned::allocate(size_t bytes) {
  constexpr size_t kLeast = 4096;
  if (bytes == 0 || bytes > SIZE_MAX / 4) return nullptr;
  const size_t size = std::bit_ceil(std::max(bytes, kLeast));
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [data, block] : blocks_) {
    if (block.bytes == size && !block.taken && idle(block)) {
      block.taken = true;
      return data;
    }
  }
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, size, cudaHostAllocPortable);
  if (status != cudaSuccess) fail(status, "cudaHostAlloc");
  Block& block = blocks_[static_cast<char*>(data)];
  block.bytes = size;
  block.taken = true;
  return data;
}

bool Pinned::idle(Block& block) {
  while (!block.events.empty()) {
    Event* event = block.events.back();
    if (!gpu(event->device).passed(event, false)) return false;
    block.events.pop_back();
  }
  return block.graphs.empty();
}

void Pinned::finish(Block& block) {
  for (const Use& use : block.uses) block.events.push_back(gpu(use.device).record(use.stream));
  block.uses.clear();
}

void Pinned::release(void* data) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(static_cast<char*>(data));
  if (found == blocks_.end() || !found->second.taken) return;
  found->second.taken = false;
  finish(found->second);
}

bool Pinned::note_use(const void* host, int32_t device, cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (blocks_.empty()) return false;
  const char* at = static_cast<const char*>(host);
  auto found = blocks_.upper_bound(const_cast<char*>(at));
  if (found == blocks_.begin()) return false;
  --found;
  Block& block = found->second;
  if (at >= found->first + block.bytes) return false;
  if (const uint64_t graph = capture_of(stream); graph != 0) {
    if (std::find(block.graphs.begin(), block.graphs.end(), graph) == block.graphs.end()) {
      block.graphs.push_back(graph);
    }
    return true;
  }
  for (const Use& use : block.uses) {
    if (use.stream == stream) return true;
  }
  block.uses.push_back({device, stream});
  return true;
}

void Pinned::end_of_graph(uint64_t graph) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [data, block] : blocks_) std::erase(block.graphs, graph);
}

void Pinned::trim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto next = blocks_.begin(); next != blocks_.end();) {
    const auto it = next++;
    if (it->second.taken || !idle(it->second)) continue;
    CUDA(cudaFreeHost(it->first));
    blocks_.erase(it);
  }
}

Pinned& pinned() {
  static Pinned* const instance = new Pinned;  // tensors may outlive main
  return *instance;
}

}  // namespace mytorch::cuda
