// Memory shared by tensors.
#pragma once

#include <atomic>
#include <cstdint>

#include "mytorch/abi.h"
#include "mytorch/device.h"

namespace mytorch {

// A reference-counted block of device memory. Its address never changes. Created by
// allocate_storage (memory owned by the framework) or wrap_storage (memory owned by the caller).
struct alignas(16) Storage {
  mt_storage abi{};  // id, version and flags, visible to kernels
  std::atomic<uint32_t> refs{1};
  uint16_t size_class = 0;  // in the pool that it came from
  uint16_t device_slot = 0;
  Device device;
  void* data = nullptr;
  uint64_t bytes = 0;
  // Releases the memory and this header. Called once, when the last reference is released.
  void (*destroy)(Storage*) = nullptr;
};

// Returns uninitialized memory, aligned to 64 bytes. Throws Error(kOutOfMemory).
Storage* allocate_storage(Device device, int device_slot, uint64_t bytes);
// Wraps the caller's memory. Calls `release(context)` when the last tensor that shares it is
// destroyed.
Storage* wrap_storage(Device device, void* data, uint64_t bytes, void (*release)(void*),
                      void* context);

namespace detail {
template <class T>
inline void retain(T* object) {
  object->refs.fetch_add(1, std::memory_order_relaxed);
}
// Returns true if the caller held the last reference. No other thread can then add one (there are
// no weak references), so a count of one needs no atomic read-modify-write.
template <class T>
inline bool release_last(T* object) {
  if (object->refs.load(std::memory_order_acquire) == 1) return true;
  return object->refs.fetch_sub(1, std::memory_order_acq_rel) == 1;
}
}  // namespace detail

}  // namespace mytorch
