// Memory that tensors share.
#pragma once

#include <atomic>
#include <cstdint>

#include "mytorch/abi.h"
#include "mytorch/device.h"

namespace mytorch {

// One block of device memory, counted. Its address never changes. Made by allocate_storage (memory
// of the framework) or wrap_storage (the caller's).
struct alignas(16) Storage {
  mt_storage abi{};  // id, version, flags: what kernels may know
  std::atomic<uint32_t> refs{1};
  uint16_t size_class = 0;  // of the pool it came from
  uint16_t device_slot = 0;
  Device device;
  void* data = nullptr;
  uint64_t bytes = 0;
  // Gives everything back, this header included. Called once, when the last reference goes.
  void (*destroy)(Storage*) = nullptr;
};

// Uninitialized memory, 64-byte aligned; throws Error(kOutOfMemory).
Storage* allocate_storage(Device device, int device_slot, uint64_t bytes);
// The caller's memory: `release(context)` is called when the last tensor that shares it goes.
Storage* wrap_storage(Device device, void* data, uint64_t bytes, void (*release)(void*),
                      void* context);

namespace detail {
template <class T>
inline void retain(T* object) {
  object->refs.fetch_add(1, std::memory_order_relaxed);
}
// True when the caller held the last reference. Nobody else can add one then (there are no weak
// references), so a count of one needs no atomic read-modify-write.
template <class T>
inline bool release_last(T* object) {
  if (object->refs.load(std::memory_order_acquire) == 1) return true;
  return object->refs.fetch_sub(1, std::memory_order_acq_rel) == 1;
}
}  // namespace detail

}  // namespace mytorch
