#include "backends/cuda/runtime/device.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/pool.h"
#include "backends/cuda/runtime/staging.h"
#include "mytorch/backend/kernel.h"

namespace mytorch::cuda {
namespace {

// An event, from a list that keeps those that were destroyed.
struct Event {
  cudaEvent_t event;
  int32_t device;
};

class Device {
 public:
  Device(int32_t index, const PoolSettings& settings)
      : index_(index),
        pool_({&take_segment, &give_back_segment, &record_for_pool, &passed_for_pool, this},
              settings) {}

  Pool& pool() { return pool_; }
  Staging& staging() { return staging_; }

  Event* record(cudaStream_t stream) {
    use_device(index_);
    Event* event = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!events_.empty()) {
        event = events_.back();
        events_.pop_back();
      }
    }
    if (event == nullptr) {
      cudaEvent_t fresh = nullptr;
      CUDA(cudaEventCreateWithFlags(&fresh, cudaEventDisableTiming));
      event = new Event{fresh, index_};
    }
    const cudaError_t status = cudaEventRecord(event->event, stream);
    if (status != cudaSuccess) {
      keep(event);
      fail(status, "cudaEventRecord");
    }
    return event;
  }
  void keep(Event* event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(event);
  }

  // Once for each pair of devices that copy to each other.
  void reach(int32_t other) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::find(reached_.begin(), reached_.end(), other) != reached_.end()) return;
    reached_.push_back(other);
    int can = 0;
    CUDA(cudaDeviceCanAccessPeer(&can, index_, other));
    if (can == 0) return;  // CUDA copies through the host
    const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
    cudaGetLastError();
    if (status != cudaErrorPeerAccessAlreadyEnabled) check(status, "cudaDeviceEnablePeerAccess");
  }

 private:
  static void* take_segment(void* self, size_t bytes) {
    use_device(static_cast<Device*>(self)->index_);
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, bytes);
    if (status == cudaSuccess) return data;
    cudaGetLastError();
    if (status != cudaErrorMemoryAllocation) fail(status, "cudaMalloc");
    return nullptr;
  }
  static void give_back_segment(void* self, void* data) {
    use_device(static_cast<Device*>(self)->index_);
    cudaFree(data);  // waits for the device; at the end of the process there may be none any more
    cudaGetLastError();
  }
  static void* record_for_pool(void* self, void* stream) {
    return static_cast<Device*>(self)->record(static_cast<cudaStream_t>(stream));
  }
  static bool passed_for_pool(void* self, void* event, bool wait) {
    auto* known = static_cast<Event*>(event);
    const cudaError_t status =
        wait ? cudaEventSynchronize(known->event) : cudaEventQuery(known->event);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    static_cast<Device*>(self)->keep(known);
    return true;
  }

  const int32_t index_;
  Pool pool_;
  Staging staging_;
  std::mutex mutex_;
  std::vector<Event*> events_;
  std::vector<int32_t> reached_;
};

int device_count() {
  int count = 0;
  CUDA(cudaGetDeviceCount(&count));
  return count;
}

// One for each device, made when the backend is loaded and never destroyed.
std::vector<std::unique_ptr<Device>>& devices() {
  static auto* const all = [] {
    PoolSettings settings;
    try {
      settings = PoolSettings::parse(std::getenv("MYTORCH_CUDA_ALLOC"));
    } catch (const std::invalid_argument& error) {
      throw sdk::Error(MT_ERROR_VALUE, error.what());
    }
    auto* list = new std::vector<std::unique_ptr<Device>>;
    for (int i = 0; i < device_count(); ++i) list->push_back(std::make_unique<Device>(i, settings));
    return list;
  }();
  return *all;
}
Device& device(int32_t index) { return *devices()[static_cast<size_t>(index)]; }

cudaStream_t stream_from(void* stream) { return static_cast<cudaStream_t>(stream); }

// Runs f() and returns MT_OK; an exception becomes its status, its message goes to the host.
template <class F>
int answer(F&& f) {
  return sdk::status_of(std::forward<F>(f), [](int status, const char* message) {
    const mt_host* host = sdk::host();
    if (host != nullptr && host->set_error != nullptr) host->set_error(status, message);
  });
}
// The same for functions that return an object, or NULL.
template <class F>
void* object_or_null(F&& f) {
  void* object = nullptr;
  answer([&] { object = f(); });
  return object;
}

void wait_for(cudaStream_t stream) {
  CUDA(cudaStreamSynchronize(stream));
  if (const std::string fault = take_fault(stream); !fault.empty()) {
    throw sdk::Error(MT_ERROR_VALUE, fault);
  }
}

bool is_pageable(const void* host) {
  cudaPointerAttributes attributes{};
  const cudaError_t status = cudaPointerGetAttributes(&attributes, host);
  cudaGetLastError();
  return status != cudaSuccess || attributes.type == cudaMemoryTypeUnregistered;
}

// Up to here CUDA takes ordinary memory into its own queue at once; it is read when the call
// returns.
constexpr size_t kInline = 64 << 10;

void copy_to_device(Device& device, char* to, const char* from, size_t bytes, cudaStream_t stream) {
  if (bytes <= kInline || !is_pageable(from)) {
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
    return;
  }
  for (size_t done = 0; done < bytes; done += Staging::kChunk) {
    const size_t n = std::min(Staging::kChunk, bytes - done);
    const Staging::Buffer buffer = device.staging().take();
    std::memcpy(buffer.data, from + done, n);
    const cudaError_t status =
        cudaMemcpyAsync(to + done, buffer.data, n, cudaMemcpyHostToDevice, stream);
    device.staging().give_back(buffer, stream);
    check(status, "cudaMemcpyAsync");
  }
}

// ---- the contract's functions -------------------------------------------------------------------

int count(void*) {
  int n = 0;
  return answer([&] { n = static_cast<int>(devices().size()); }) == MT_OK ? n : -1;
}

void* allocate(void*, int32_t index, size_t bytes, void* stream) {
  return object_or_null([&]() -> void* {
    Pool& pool = device(index).pool();
    void* data = pool.allocate(bytes, stream);
    if (data == nullptr && bytes != 0) {
      throw sdk::Error(MT_ERROR_OUT_OF_MEMORY, pool.summary());
    }
    return data;
  });
}

void release(void*, int32_t index, void* data, size_t, void* stream) {
  answer([&] { device(index).pool().release(data, stream); });
}

int copy(void*, int32_t index, int32_t kind, void* to, const void* from, size_t bytes,
         void* stream) {
  return answer([&] {
    if (bytes == 0) return;
    use_device(index);
    auto* target = static_cast<char*>(to);
    const auto* source = static_cast<const char*>(from);
    const cudaStream_t on = stream_from(stream);
    if (kind == MT_COPY_TO_DEVICE) {
      copy_to_device(device(index), target, source, bytes, on);
    } else if (kind == MT_COPY_TO_HOST) {
      // To ordinary memory CUDA returns when all is there.
      CUDA(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, on));
    } else {
      CUDA(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, on));
    }
    if (synchronous) wait_for(on);
  });
}

// Negative priorities go before 0, positive ones after it.
void* create_stream(void*, int32_t index, int32_t priority) {
  return object_or_null([&]() -> void* {
    use_device(index);
    int least = 0, greatest = 0;
    CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t stream = nullptr;
    CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                      std::clamp<int>(priority, greatest, least)));
    return stream;
  });
}

void destroy_stream(void*, int32_t index, void* stream) {
  answer([&] {
    use_device(index);
    CUDA(cudaStreamDestroy(stream_from(stream)));
  });
}

int synchronize(void*, int32_t index, void* stream) {
  return answer([&] {
    use_device(index);
    wait_for(stream_from(stream));
  });
}

void* record_event(void*, int32_t index, void* stream) {
  return object_or_null([&] { return device(index).record(stream_from(stream)); });
}

int wait_event(void*, int32_t index, void* stream, void* event) {
  return answer([&] {
    const cudaEvent_t known = static_cast<Event*>(event)->event;
    if (stream == nullptr) {
      CUDA(cudaEventSynchronize(known));
    } else {
      use_device(index);
      CUDA(cudaStreamWaitEvent(stream_from(stream), known, 0));
    }
  });
}

int query_event(void*, void* event) {
  const cudaError_t status = cudaEventQuery(static_cast<Event*>(event)->event);
  if (status == cudaSuccess) return 1;
  cudaGetLastError();
  if (status == cudaErrorNotReady) return 0;
  return -answer([&] { fail(status, "cudaEventQuery"); });
}

void destroy_event(void*, void* event) {
  auto* known = static_cast<Event*>(event);
  answer([&] { device(known->device).keep(known); });
}

int memory_info(void*, int32_t index, uint64_t* free_bytes, uint64_t* total_bytes) {
  return answer([&] {
    use_device(index);
    size_t free = 0, total = 0;
    CUDA(cudaMemGetInfo(&free, &total));
    *free_bytes = free + device(index).pool().cached();
    *total_bytes = total;
  });
}

int device_name(void*, int32_t index, char* buffer, size_t bytes) {
  return answer([&] {
    cudaDeviceProp all{};
    CUDA(cudaGetDeviceProperties(&all, index));
    std::snprintf(buffer, bytes, "%s", all.name);
  });
}

int copy_peer(void*, int32_t to_index, void* to, int32_t from_index, const void* from, size_t bytes,
              void* stream) {
  return answer([&] {
    use_device(from_index);
    device(from_index).reach(to_index);
    use_device(to_index);
    device(to_index).reach(from_index);
    CUDA(cudaMemcpyPeerAsync(to, to_index, from, from_index, bytes, stream_from(stream)));
    if (synchronous) wait_for(stream_from(stream));
  });
}

std::string version_text(int version) {  // 13000
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

const mt_device_ops& device_ops() {
  static const mt_device_ops ops = [] {
    mt_device_ops filled{};
    filled.size = sizeof(filled);
    filled.type = MT_DEVICE_CUDA;
    filled.device_count = &count;
    filled.allocate = &allocate;
    filled.release = &release;
    filled.copy = &copy;
    filled.create_stream = &create_stream;
    filled.synchronize = &synchronize;
    filled.record_event = &record_event;
    filled.wait_event = &wait_event;
    filled.query_event = &query_event;
    filled.destroy_event = &destroy_event;
    filled.destroy_stream = &destroy_stream;
    filled.memory_info = &memory_info;
    filled.device_name = &device_name;
    filled.copy_peer = &copy_peer;
    return filled;
  }();
  return ops;
}

const char* describe(void*) {
  static const std::string text = [] {
    std::string all;
    answer([&] {
      for (int i = 0; i < device_count(); ++i) {
        char name[256];
        if (device_name(nullptr, i, name, sizeof(name)) != MT_OK) continue;
        const Properties& p = properties(i);
        all += std::string(name) + " (sm_" + std::to_string(p.major) + std::to_string(p.minor) +
               ", " + std::to_string(p.multiprocessors) + " multiprocessors), ";
      }
      int driver = 0, runtime = 0;
      CUDA(cudaDriverGetVersion(&driver));
      CUDA(cudaRuntimeGetVersion(&runtime));
      const size_t cudnn = cudnnGetVersion();  // 91300
      all += "driver for CUDA " + version_text(driver) + ", CUDA " + version_text(runtime) +
             ", cuDNN " + std::to_string(cudnn / 10000) + "." + std::to_string(cudnn / 100 % 100) +
             "." + std::to_string(cudnn % 100);
    });
    return all;
  }();
  return text.c_str();
}

}  // namespace mytorch::cuda
