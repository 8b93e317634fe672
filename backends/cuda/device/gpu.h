// The state of each device: memory pool, events, staging buffers.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/memory/guarded_memory.h"
#include "backends/cuda/memory/pool.h"
#include "backends/cuda/memory/staging.h"

namespace mytorch::cuda {

// The host names streams by pointers.
inline cudaStream_t stream_from(void* stream) { return static_cast<cudaStream_t>(stream); }

// A CUDA event. Destroyed events are kept for reuse.
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

  // Allocates memory for use on `stream`. Throws Error(MT_ERROR_OUT_OF_MEMORY) with a summary of
  // the pool.
  void* allocate(size_t bytes, void* stream);
  void release(void* data, void* stream);

  PoolStats stats();
  size_t cached();
  std::string summary();
  void trim();
  void reset_peaks();

  Pool& pool() { return pool_; }
  Staging& staging() { return staging_; }

  // Records an event on a stream of the device; keep() takes it back. `timed`: a timing event.
  Event* record(cudaStream_t stream, bool timed = false);
  void keep(Event* event);
  // Returns whether the event has completed, and then takes it back. Waits for it if `wait`.
  bool passed(Event* event, bool wait);

  // Enables peer access to another device, once for each pair.
  void reach(int32_t other);

 private:
  static SegmentSource source_of(Gpu* self, const PoolSettings& settings);
  static GuardedMemory::Source guarded_source_of(Gpu* self);
  cudaMemPool_t cuda_pool();

  const int32_t index_;
  const PoolSettings settings_;
  std::atomic<bool> keeps_{false};          // whether CUDA's pool is configured to keep its memory
  std::unique_ptr<GuardedMemory> guarded_;  // if the settings ask for it
  Pool pool_;
  Staging staging_;
  std::mutex mutex_;
  cudaStream_t aside_ = nullptr;   // frees memory of CUDA's pool during captures
  std::vector<Event*> events_[2];  // without and with timing
  std::vector<int32_t> reached_;
};

// Created when the backend is loaded and never destroyed.
Gpu& gpu(int32_t index);
size_t num_gpus();

// Waits for a stream. Throws Error(MT_ERROR_VALUE) if one of its kernels recorded a fault.
void wait_for(cudaStream_t stream);

}  // namespace mytorch::cuda
