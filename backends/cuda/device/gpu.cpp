#include "backends/cuda/device/gpu.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "backends/cuda/memory/virtual_memory.h"
#include "backends/cuda/runtime/capture.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {
namespace {

// Does not initialize a context on a device that may never be used.
size_t total_memory(int32_t index) {
  cudaDeviceProp all{};
  CUDA(cudaGetDeviceProperties(&all, index));
  return all.totalGlobalMem;
}

uint64_t attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
  uint64_t value = 0;
  CUDA(cudaMemPoolGetAttribute(pool, which, &value));
  return value;
}

}  // namespace

// ---- the source of segments

GuardedMemory::Source Gpu::guarded_source_of(Gpu* self) {
  GuardedMemory::Source source{};
  source.self = self;
  source.span = total_memory(self->index_) / GuardedMemory::kUnit * GuardedMemory::kUnit;
  source.reserve = [](void* gpu) { return reserve_addresses(static_cast<Gpu*>(gpu)->index_); };
  source.map = [](void* gpu, void* at, size_t bytes) {
    return map_memory(static_cast<Gpu*>(gpu)->index_, at, bytes);
  };
  source.unmap = [](void* gpu, void* at, size_t bytes) {
    return unmap_memory(static_cast<Gpu*>(gpu)->index_, at, bytes);
  };
  source.wait = [](void* gpu) {
    if (internal::captures.load() != 0) return false;
    use_device(static_cast<Gpu*>(gpu)->index_);
    return cudaDeviceSynchronize() == cudaSuccess;
  };
  return source;
}

SegmentSource Gpu::source_of(Gpu* self, const PoolSettings& settings) {
  SegmentSource source{};
  source.self = self;
  source.take = [](void* gpu, size_t bytes) -> void* {
    use_device(static_cast<Gpu*>(gpu)->index_);
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, bytes);
    if (status == cudaSuccess) return data;
    cudaGetLastError();
    if (status != cudaErrorMemoryAllocation) fail(status, "cudaMalloc");
    return nullptr;
  };
  source.give_back = [](void* gpu, void* data) {
    use_device(static_cast<Gpu*>(gpu)->index_);
    cudaFree(data);  // waits for the device, which may be gone at exit
    cudaGetLastError();
  };
  source.record = [](void* gpu, void* stream) -> void* {
    return static_cast<Gpu*>(gpu)->record(stream_from(stream));
  };
  source.passed = [](void* gpu, void* event, bool wait) {
    return static_cast<Gpu*>(gpu)->passed(static_cast<Event*>(event), wait);
  };
  source.idle = [](void* gpu, void* stream) {
    use_device(static_cast<Gpu*>(gpu)->index_);
    const cudaError_t status = cudaStreamQuery(stream_from(stream));
    cudaGetLastError();
    return status == cudaSuccess;
  };
  source.graph_of = [](void*, void* stream) { return capture_of(stream_from(stream)); };
  if (settings.guarded) {
    self->guarded_ = std::make_unique<GuardedMemory>(guarded_source_of(self));
    source.take = [](void* gpu, size_t bytes) {
      return static_cast<Gpu*>(gpu)->guarded_->take(bytes);
    };
    source.give_back = [](void* gpu, void* data) {
      static_cast<Gpu*>(gpu)->guarded_->give_back(data);
    };
  }
  if (settings.expandable) {
    source.reserve = [](void* gpu) { return reserve_addresses(static_cast<Gpu*>(gpu)->index_); };
    source.unreserve = [](void* gpu, void* base) {
      free_addresses(static_cast<Gpu*>(gpu)->index_, base);
    };
    source.map = [](void* gpu, void* base, size_t mapped, size_t bytes) {
      return map_memory(static_cast<Gpu*>(gpu)->index_, static_cast<char*>(base) + mapped, bytes);
    };
    source.unmap = [](void* gpu, void* base, size_t mapped, size_t bytes) {
      return unmap_memory(static_cast<Gpu*>(gpu)->index_, static_cast<char*>(base) + mapped, bytes);
    };
  }
  source.total = total_memory(self->index_);
  return source;
}

Gpu::Gpu(int32_t index, const PoolSettings& settings)
    : index_(index), settings_(settings), pool_(source_of(this, settings), settings) {}

// Returns CUDA's own pool, configured to keep all of its memory.
cudaMemPool_t Gpu::cuda_pool() {
  use_device(index_);
  cudaMemPool_t pool = nullptr;
  CUDA(cudaDeviceGetDefaultMemPool(&pool, index_));
  uint64_t all = UINT64_MAX;
  CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
  return pool;
}

// ---- memory

void* Gpu::allocate(size_t bytes, void* stream) {
  if (bytes == 0) return nullptr;
  // Memory of graphs always comes from our pool.
  if (settings_.async && capture_of(stream_from(stream)) == 0) {
    if (!keeps_.exchange(true)) cuda_pool();
    use_device(index_);
    void* data = nullptr;
    const cudaError_t status = cudaMallocAsync(&data, bytes, stream_from(stream));
    if (status == cudaSuccess) return data;
    if (status != cudaErrorMemoryAllocation) fail(status, "cudaMallocAsync");
    cudaGetLastError();
  } else if (void* data = pool_.allocate(bytes, stream); data != nullptr) {
    return data;
  }
  const PoolStats s = stats();
  throw sdk::Error(
      MT_ERROR_OUT_OF_MEMORY,
      settings_.async ? std::to_string(s.used >> 20) + " MiB in use in CUDA's pool" : pool_.line());
}

void Gpu::release(void* data, void* stream) {
  if (data == nullptr || pool_.release(data, stream) || !settings_.async) return;
  use_device(index_);
  if (capture_of(stream_from(stream)) != 0) {
    // The capture began when the stream was idle, and captured work has not run.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (aside_ == nullptr) CUDA(cudaStreamCreateWithFlags(&aside_, cudaStreamNonBlocking));
    stream = aside_;
  }
  CUDA(cudaFreeAsync(data, stream_from(stream)));
}

PoolStats Gpu::stats() {
  PoolStats s = pool_.stats();
  if (!settings_.async) return s;
  cudaMemPool_t pool = cuda_pool();
  s.used += attribute(pool, cudaMemPoolAttrUsedMemCurrent);
  s.used_peak += attribute(pool, cudaMemPoolAttrUsedMemHigh);
  s.reserved += attribute(pool, cudaMemPoolAttrReservedMemCurrent);
  s.reserved_peak += attribute(pool, cudaMemPoolAttrReservedMemHigh);
  return s;
}

size_t Gpu::cached() {
  const PoolStats s = stats();
  return s.reserved - s.used;
}

std::string Gpu::summary() {
  std::string text = "cuda:" + std::to_string(index_) + ", " +
                     (settings_.async        ? "CUDA's own pool; the rest is for graphs only\n"
                      : settings_.guarded    ? "guarded blocks\n"
                      : !settings_.caching   ? "no caching\n"
                      : settings_.expandable ? "expandable segments\n"
                                             : "segments\n");
  if (settings_.async) {
    const PoolStats s = stats();
    text += "  total       " + std::to_string(s.used >> 20) + " MiB in use, " +
            std::to_string(s.reserved >> 20) + " MiB reserved\n";
  }
  return text + pool_.summary();
}

void Gpu::trim() {
  pool_.trim();
  if (settings_.async) CUDA(cudaMemPoolTrimTo(cuda_pool(), 0));
}

void Gpu::reset_peaks() {
  pool_.reset_peaks();
  if (!settings_.async) return;
  cudaMemPool_t pool = cuda_pool();
  uint64_t zero = 0;
  CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
  CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &zero));
}

// ---- events

Event* Gpu::record(cudaStream_t stream, bool timed) {
  use_device(index_);
  Event* event = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (auto& idle = events_[timed ? 1 : 0]; !idle.empty()) {
      event = idle.back();
      idle.pop_back();
    }
  }
  if (event == nullptr) {
    cudaEvent_t fresh = nullptr;
    CUDA(cudaEventCreateWithFlags(&fresh, timed ? cudaEventDefault : cudaEventDisableTiming));
    event = new Event{fresh, index_, timed};
  }
  const cudaError_t status = cudaEventRecord(event->event, stream);
  if (status != cudaSuccess) {
    keep(event);
    fail(status, "cudaEventRecord");
  }
  return event;
}

void Gpu::keep(Event* event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_[event->timed ? 1 : 0].push_back(event);
}

bool Gpu::passed(Event* event, bool wait) {
  const cudaError_t status =
      wait ? cudaEventSynchronize(event->event) : cudaEventQuery(event->event);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  keep(event);
  return true;
}

void Gpu::reach(int32_t other) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::find(reached_.begin(), reached_.end(), other) != reached_.end()) return;
  reached_.push_back(other);
  int can = 0;
  CUDA(cudaDeviceCanAccessPeer(&can, index_, other));
  if (can == 0) return;  // CUDA then copies through the host
  const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
  cudaGetLastError();
  if (status != cudaErrorPeerAccessAlreadyEnabled) check(status, "cudaDeviceEnablePeerAccess");
}

// ---- all devices

namespace {

std::vector<std::unique_ptr<Gpu>>& gpus() {
  static auto* const all = [] {
    PoolSettings settings;
    try {
      settings = PoolSettings::parse(std::getenv("MYTORCH_CUDA_ALLOC"));
    } catch (const std::invalid_argument& error) {
      throw sdk::Error(MT_ERROR_VALUE, error.what());
    }
    int count = 0;
    CUDA(cudaGetDeviceCount(&count));
    auto* list = new std::vector<std::unique_ptr<Gpu>>;
    for (int i = 0; i < count; ++i) list->push_back(std::make_unique<Gpu>(i, settings));
    return list;
  }();
  return *all;
}

}  // namespace

Gpu& gpu(int32_t index) { return *gpus()[static_cast<size_t>(index)]; }
size_t num_gpus() { return gpus().size(); }

void wait_for(cudaStream_t stream) {
  CUDA(cudaStreamSynchronize(stream));
  if (const std::string fault = take_fault(stream); !fault.empty()) {
    throw sdk::Error(MT_ERROR_VALUE, fault);
  }
}

}  // namespace mytorch::cuda
