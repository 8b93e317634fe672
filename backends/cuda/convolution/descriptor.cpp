#include "backends/cuda/convolution/descriptor.h"

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw sdk::Error(status == CUDNN_STATUS_ALLOC_FAILED ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_INTERNAL,
                   std::string(what) + ": " + cudnnGetErrorString(status));
}

namespace {

// A handle belongs to one thread at a time. Handles of threads that end are reused. They are never
// destroyed: at exit the driver may be gone first.
class Handles {
 public:
  cudnnHandle_t get(const mt_ctx& ctx) {
    cudnnHandle_t& own = by_device_[ctx.device.index];
    if (own == nullptr) own = take(ctx.device.index);
    CUDNN(cudnnSetStream(own, stream_of(ctx)));
    return own;
  }
  ~Handles() {
    const std::lock_guard lock(pool().mutex);
    for (const auto& [device, handle] : by_device_) pool().free[device].push_back(handle);
  }

 private:
  struct Pool {
    std::mutex mutex;
    std::unordered_map<int32_t, std::vector<cudnnHandle_t>> free;
  };
  static Pool& pool() {
    static auto* const instance = new Pool;
    return *instance;
  }
  static cudnnHandle_t take(int32_t device) {
    {
      const std::lock_guard lock(pool().mutex);
      auto& free = pool().free[device];
      if (!free.empty()) {
        const cudnnHandle_t handle = free.back();
        free.pop_back();
        return handle;
      }
    }
    cudnnHandle_t handle;
    CUDNN(cudnnCreate(&handle));
    return handle;
  }
  std::unordered_map<int32_t, cudnnHandle_t> by_device_;
};

}  // namespace

cudnnHandle_t cudnn_handle_of(const mt_ctx& ctx) {
  thread_local Handles handles;
  return handles.get(ctx);
}

}  // namespace mytorch::cuda
