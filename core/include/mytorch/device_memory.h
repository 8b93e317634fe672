// What a device's allocator holds, and memory of the host that devices copy from without a detour.
#pragma once

#include <cstdint>
#include <string>

#include "mytorch/device.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Bytes. A device that does not tell gives Error(kUnsupported), as the CPU does.
struct MemoryStats {
  uint64_t allocated = 0;  // handed out to tensors and kernels, as the allocator rounds them
  uint64_t allocated_peak = 0;
  uint64_t reserved = 0;  // taken from the driver; what is not allocated is kept for reuse
  uint64_t reserved_peak = 0;
  uint64_t largest_free = 0;  // the largest free block
  uint64_t blocks = 0;        // handed out
  uint64_t segments = 0;      // held
  // How often a request found memory only after free segments were given back, and not even then.
  uint64_t retries = 0;
  uint64_t failures = 0;
  // The part of the free memory that the largest request could not have, from 0 to 1.
  double fragmentation() const {
    const uint64_t free = reserved - allocated;
    return free == 0 ? 0 : 1 - static_cast<double>(largest_free) / static_cast<double>(free);
  }
};
MemoryStats memory_stats(Device device = Device("cuda"));

// The same for people, by streams and graphs.
std::string memory_summary(Device device = Device("cuda"));

// Gives back to the driver what is free.
void empty_cache(Device device = Device("cuda"));
// The peaks begin again, at what is there.
void reset_peak_memory(Device device = Device("cuda"));

// Waits for what this thread has queued on the device; throws what went wrong there.
void synchronize(Device device = Device("cuda"));

// A tensor of the host in pinned memory: copies between it and a device of that kind with
// `non_blocking` return at once. A copy to the device may be followed by the end of the tensor,
// whose memory is used again only when the copy is done, but not by a change of its values; one
// from the device has to be waited for before it is read. Throws Error(kUnsupported) where the
// device knows no such memory.
Tensor empty_pinned(IntList sizes, ScalarType dtype = kFloat32, Device device = Device("cuda"));
// The same with the values of a tensor, from whatever device.
Tensor pin_memory(const Tensor& tensor, Device device = Device("cuda"));

}  // namespace mytorch
