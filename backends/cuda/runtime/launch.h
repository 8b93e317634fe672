// Kernel launches on the stream of a call.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backends/cuda/runtime/status.h"
#include "mytorch/abi.h"

namespace mytorch::cuda {

inline cudaStream_t stream_of(const mt_ctx& ctx) { return static_cast<cudaStream_t>(ctx.stream); }

// Makes the context's device the current device of the thread. Every kernel calls it before any
// CUDA function. Costs one comparison if the device is current already.
namespace internal {
extern thread_local constinit int32_t current_device;
void change_device(int32_t index);
}  // namespace internal
inline void use_device(int32_t index) {
  if (internal::current_device != index) [[unlikely]]
    internal::change_device(index);
}
inline void use_device(const mt_ctx& ctx) { use_device(ctx.device.index); }

// The properties of a device that determine launch shapes.
struct Properties {
  int multiprocessors;
  int threads;       // resident per multiprocessor
  size_t shared;     // the most per block, in bytes
  size_t l2;         // bytes
  int major, minor;  // compute capability
};
const Properties& properties(int32_t index);

// MYTORCH_CUDA_SYNC=1: waits for every launch and library call, so that an error names the operator
// that caused it.
extern const bool synchronous;
// Call this after queueing work. Throws the error of the launch and, under MYTORCH_CUDA_SYNC, that
// of the work itself. `what` names the work in errors.
void queued(const mt_ctx& ctx, const char* what);

struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t shared = 0;  // bytes of dynamic shared memory
};

// Returns a grid with blocks of `threads` threads for n work items. The grid has at most `waves`
// times the blocks that the device holds at once; kernels use a grid-stride loop.
Grid grid_for(const mt_ctx& ctx, int64_t n, int threads, int waves = 8);

// Allows a kernel to use `bytes` bytes of dynamic shared memory. A kernel that uses more than 48
// KiB needs it before each launch; only the first call for a kernel and device has a cost.
void allow_shared(const mt_ctx& ctx, const void* kernel, size_t bytes);

namespace internal {
void launch(mt_ctx& ctx, const char* name, const void* kernel, const Grid& grid, void** params);
}  // namespace internal

// Queues `kernel` on the context's stream. `name` appears in error messages.
template <class... Params, class... Args>
void launch(mt_ctx& ctx, const char* name, void (*kernel)(Params...), const Grid& grid,
            const Args&... args) {
  const auto start = [&](Params... params) {
    void* pointers[] = {static_cast<void*>(&params)..., nullptr};
    internal::launch(ctx, name, reinterpret_cast<const void*>(kernel), grid, pointers);
  };
  start(args...);
}

// Returns scratch memory on the context's device, valid until the call ends. Throws
// Error(MT_ERROR_OUT_OF_MEMORY).
void* scratch_bytes(mt_ctx& ctx, size_t bytes);
template <class T>
T* scratch(mt_ctx& ctx, int64_t n) {
  return static_cast<T*>(scratch_bytes(ctx, static_cast<size_t>(n) * sizeof(T)));
}

}  // namespace mytorch::cuda
