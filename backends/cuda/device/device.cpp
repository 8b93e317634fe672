#include "backends/cuda/device/device.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "backends/cuda/device/answer.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/graph.h"
#include "backends/cuda/device/pinned.h"
#include "backends/cuda/runtime/capture.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

bool is_pageable(const void* host) {
  cudaPointerAttributes attributes{};
  const cudaError_t status = cudaPointerGetAttributes(&attributes, host);
  cudaGetLastError();
  return status != cudaSuccess || attributes.type == cudaMemoryTypeUnregistered;
}

// CUDA copies up to this many bytes of pageable memory before the call returns.
constexpr size_t kInline = 64 << 10;

void copy_to_device(Gpu& device, char* to, const char* from, size_t bytes, cudaStream_t stream) {
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

// ---- functions of the contract

int count(void*) {
  int n = 0;
  return answer([&] { n = static_cast<int>(num_gpus()); }) == MT_OK ? n : -1;
}

void* allocate(void*, int32_t index, size_t bytes, void* stream) {
  return object_or_null([&] { return gpu(index).allocate(bytes, stream); });
}

void release(void*, int32_t index, void* data, size_t, void* stream) {
  answer([&] { gpu(index).release(data, stream); });
}

int copy(void*, int32_t index, int32_t kind, void* to, const void* from, size_t bytes,
         void* stream) {
  return answer([&] {
    if (bytes == 0) return;
    use_device(index);
    auto* target = static_cast<char*>(to);
    const auto* source = static_cast<const char*>(from);
    const cudaStream_t on = stream_from(stream);
    if (kind != MT_COPY_ON_DEVICE) {
      const void* host = kind == MT_COPY_TO_DEVICE ? from : to;
      if (!pinned().note_use(host, index, on) && capture_of(on) != 0 && is_pageable(host)) {
        check_not_captured(on, "a graph cannot copy host memory that is not pinned");
      }
    }
    if (kind == MT_COPY_TO_DEVICE) {
      copy_to_device(gpu(index), target, source, bytes, on);
    } else if (kind == MT_COPY_TO_HOST) {
      // A copy to pageable memory returns when it is complete.
      CUDA(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, on));
    } else {
      CUDA(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, on));
    }
    if (synchronous && capture_of(on) == 0) wait_for(on);
  });
}

// Streams with a negative priority run before those with 0, positive ones after.
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

// A new stream may get the same handle, so no work of this one may still be running.
void destroy_stream(void*, int32_t index, void* stream) {
  answer([&] {
    use_device(index);
    const cudaError_t status = cudaStreamSynchronize(stream_from(stream));
    gpu(index).pool().end_of_stream(stream);
    CUDA(cudaStreamDestroy(stream_from(stream)));
    check(status, "cudaStreamSynchronize");
  });
}

int synchronize(void*, int32_t index, void* stream) {
  return answer([&] {
    use_device(index);
    check_not_captured(stream_from(stream), "the host waits for the device");
    wait_for(stream_from(stream));
  });
}

void* record_event(void*, int32_t index, void* stream) {
  return object_or_null([&] { return gpu(index).record(stream_from(stream)); });
}

int wait_event(void*, int32_t index, void* stream, void* event) {
  return answer([&] {
    const cudaEvent_t known = static_cast<Event*>(event)->event;
    if (stream == nullptr) {
      CUDA(cudaEventSynchronize(known));
    } else {
      use_device(index);
      CUDA(cudaStreamWaitEvent(stream_from(stream), known, 0));
      note_branch(stream);
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
  answer([&] { gpu(known->device).keep(known); });
}

void* record_timed_event(void*, int32_t index, void* stream) {
  return object_or_null([&] {
    check_not_captured(stream_from(stream), "a timed event is recorded");
    return gpu(index).record(stream_from(stream), true);
  });
}

int event_elapsed(void*, void* begin, void* end, double* seconds) {
  return answer([&] {
    float milliseconds = 0;
    CUDA(cudaEventElapsedTime(&milliseconds, static_cast<Event*>(begin)->event,
                              static_cast<Event*>(end)->event));
    *seconds = static_cast<double>(milliseconds) * 1e-3;
  });
}

int memory_info(void*, int32_t index, uint64_t* free_bytes, uint64_t* total_bytes) {
  return answer([&] {
    use_device(index);
    size_t free = 0, total = 0;
    CUDA(cudaMemGetInfo(&free, &total));
    *free_bytes = free + gpu(index).cached();
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
    gpu(from_index).reach(to_index);
    use_device(to_index);
    gpu(to_index).reach(from_index);
    CUDA(cudaMemcpyPeerAsync(to, to_index, from, from_index, bytes, stream_from(stream)));
    if (synchronous && capture_of(stream_from(stream)) == 0) wait_for(stream_from(stream));
  });
}

int memory_stats(void*, int32_t index, mt_memory_stats* stats) {
  return answer([&] {
    const PoolStats s = gpu(index).stats();
    mt_memory_stats all{};
    all.allocated = s.used;
    all.allocated_peak = s.used_peak;
    all.reserved = s.reserved;
    all.reserved_peak = s.reserved_peak;
    all.largest_free = s.largest_free;
    all.blocks = s.blocks;
    all.segments = s.segments;
    all.retries = s.retries;
    all.failures = s.failures;
    all.size = std::min(stats->size, sizeof(all));
    std::memcpy(stats, &all, all.size);
  });
}

int64_t memory_summary(void*, int32_t index, char* buffer, size_t bytes) {
  std::string text;
  if (answer([&] { text = gpu(index).summary(); }) != MT_OK) return -1;
  if (bytes != 0) std::snprintf(buffer, bytes, "%s", text.c_str());
  return static_cast<int64_t>(text.size());
}

int empty_cache(void*, int32_t index) {
  return answer([&] {
    gpu(index).trim();
    pinned().trim();
  });
}

int reset_peaks(void*, int32_t index) {
  return answer([&] { gpu(index).reset_peaks(); });
}

void* allocate_pinned(void*, size_t bytes) {
  return object_or_null([&] { return pinned().allocate(bytes); });
}

void release_pinned(void*, void* data, size_t) {
  answer([&] { pinned().release(data); });
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
    filled.begin_graph = &begin_graph;
    filled.end_graph = &end_graph;
    filled.launch_graph = &launch_graph;
    filled.destroy_graph = &destroy_graph;
    filled.memory_stats = &memory_stats;
    filled.memory_summary = &memory_summary;
    filled.empty_cache = &empty_cache;
    filled.reset_peaks = &reset_peaks;
    filled.allocate_pinned = &allocate_pinned;
    filled.release_pinned = &release_pinned;
    filled.record_timed_event = &record_timed_event;
    filled.event_elapsed = &event_elapsed;
    return filled;
  }();
  return ops;
}

const char* describe(void*) {
  static const std::string text = [] {
    std::string all;
    answer([&] {
      for (int i = 0; i < static_cast<int>(num_gpus()); ++i) {
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
