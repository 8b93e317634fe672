// Reserved address ranges, and physical memory mapped into them: the basis of expandable segments.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mytorch::cuda {

// Reserves addresses for all of the device's memory. Returns NULL if the driver has none left;
// throws Error(MT_ERROR_INTERNAL) if the driver does not support virtual memory management.
void* reserve_addresses(int32_t device);
void free_addresses(int32_t device, void* base);
// Maps `bytes`, a multiple of 2 MiB, at reserved addresses. Returns false if the device is out of
// memory.
bool map_memory(int32_t device, void* at, size_t bytes);
// Unmaps a range exactly as it was mapped, after waiting for the device. Returns false during a
// capture, in which the host cannot wait.
bool unmap_memory(int32_t device, void* at, size_t bytes);

}  // namespace mytorch::cuda
