// Statistics of device allocators, and pinned host memory.
#pragma once

#include <cstdint>
#include <string>

#include "mytorch/device.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Byte counts and counters of a device's allocator.
struct MemoryStats {
  uint64_t allocated = 0;  // given to tensors and kernels, including the allocator's rounding
  uint64_t allocated_peak = 0;
  uint64_t reserved = 0;  // obtained from the driver; the unallocated part is cached for reuse
  uint64_t reserved_peak = 0;
  uint64_t largest_free = 0;  // size of the largest free block
  uint64_t blocks = 0;        // number of allocated blocks
  uint64_t segments = 0;      // number of segments obtained from the driver
  // Allocations that succeeded only after cached segments were returned to the driver, and those
  // that failed even then.
  uint64_t retries = 0;
  uint64_t failures = 0;
  // The fraction of free memory outside the largest free block, from 0 to 1.
  double fragmentation() const {
    const uint64_t free = reserved - allocated;
    return free == 0 ? 0 : 1 - static_cast<double>(largest_free) / static_cast<double>(free);
  }
};
MemoryStats memory_stats(Device device = Device("cuda"));

// Returns the same statistics as text, broken down by stream and graph. These four functions throw
// Error(kUnsupported) for a device that keeps no statistics, such as the CPU.
std::string memory_summary(Device device = Device("cuda"));

// Returns cached, unallocated memory to the driver.
void empty_cache(Device device = Device("cuda"));
// Resets the peaks to the current values.
void reset_peak_memory(Device device = Device("cuda"));

// Waits until all work that this thread queued on the device has finished. Throws the error of work
// that failed.
void synchronize(Device device = Device("cuda"));

// Returns an uninitialized CPU tensor of shape `sizes` in pinned memory: copies between it and
// devices of the given kind return immediately if called with `non_blocking`.
//
// During a copy to the device, the tensor may be destroyed, since its memory is reused only after
// the copy, but its values must not change. After a copy from the device, synchronize before
// reading it. Throws Error(kUnsupported) if the device has no pinned memory.
Tensor empty_pinned(IntList sizes, ScalarType dtype = kFloat32, Device device = Device("cuda"));
// Returns a copy of a tensor, from any device, in pinned memory.
Tensor pin_memory(const Tensor& tensor, Device device = Device("cuda"));

}  // namespace mytorch
