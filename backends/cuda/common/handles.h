// Handles of NVIDIA's libraries. A handle belongs to one thread at a time. Handles of threads that
// end are reused. They are never destroyed: at exit the driver may be gone first.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {

// Returns this thread's handle for a device, which create() makes. A library's handles have a type
// of their own.
template <class Handle, class Create>
Handle handle_for(int32_t device, Create&& create) {
  struct Pool {
    std::mutex mutex;
    std::unordered_map<int32_t, std::vector<Handle>> free;
  };
  static auto* const pool = new Pool;
  struct Own {
    std::unordered_map<int32_t, Handle> by_device;
    ~Own() {
      const std::lock_guard lock(pool->mutex);
      for (const auto& [index, handle] : by_device) pool->free[index].push_back(handle);
    }
  };
  thread_local Own own;
  Handle& handle = own.by_device[device];
  if (handle != nullptr) return handle;
  {
    const std::lock_guard lock(pool->mutex);
    auto& free = pool->free[device];
    if (!free.empty()) {
      handle = free.back();
      free.pop_back();
      return handle;
    }
  }
  use_device(device);
  try {
    handle = create();
  } catch (...) {
    own.by_device.erase(device);
    throw;
  }
  return handle;
}

}  // namespace mytorch::cuda
