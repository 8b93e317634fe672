// What the backend keeps for each device: memory, events, buffers for copies.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/memory/pool.h"
#include "backends/cuda/memory/staging.h"

namespace mytorch::cuda {

// An event, from a list that keeps those that were destroyed.
struct Event {
  cudaEvent_t event;
  int32_t device;
  bool timed;
};

class Gpu {
 public:
  Gpu(int32_t index, const PoolSettings& settings);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // For use on `stream`. Throws Error(MT_ERROR_OUT_OF_MEMORY) with what holds the memory.
  void* allocate(size_t bytes, void* stream);
  void release(void* data, void* stream);

  PoolStats stats();
  size_t cached();
  std::string summary();
  void trim();
  void reset_peaks();

  Pool& pool() { return pool_; }
  Staging& staging() { return staging_; }

  // An event behind what was queued on a stream of the device; `keep` takes it back. `timed`: it
  // knows when.
  Event* record(cudaStream_t stream, bool timed = false);
  void keep(Event* event);
  // Whether the device has come so far; then the event is taken back.
  bool passed(Event* event, bool wait);

  // Once for each pair of devices that copy to each other.
  void reach(int32_t other);

 private:
  static SegmentSource source_of(Gpu* self, bool expandable);
  cudaMemPool_t cuda_pool();

  const int32_t index_;
  const PoolSettings settings_;
  std::atomic<bool> keeps_{false};  // CUDA's pool what it was given
  Pool pool_;
  Staging staging_;
  std::mutex mutex_;
  cudaStream_t aside_ = nullptr;   // where memory of CUDA's pool is given back from recordings
  std::vector<Event*> events_[2];  // and those that are timed
  std::vector<int32_t> reached_;
};

// Made when the backend is loaded, and never destroyed.
Gpu& gpu(int32_t index);
size_t num_gpus();

// Waits for a stream; throws what its kernels noted.
void wait_for(cudaStream_t stream);

}  // namespace mytorch::cuda
