// Blocks of host memory, kept for reuse. Small ones are cached per thread, so a tensor's life costs
// no lock; large ones are cached in one place, so that they keep their pages: a fresh 64 MB block
// costs more in page faults than most kernels that fill it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mytorch::cpu_pool {

// A block of at least `bytes`, 64-byte aligned, and the class to release it with. Null when out of
// memory (after the caches were emptied).
void* allocate(size_t bytes, uint16_t* size_class);
void release(void* block, uint16_t size_class);

// Returns cached blocks to the system: this thread's small ones and all large ones.
void trim();

struct Stats {
  uint64_t large_in_use = 0;  // bytes
  uint64_t large_cached = 0;
};
Stats stats();

}  // namespace mytorch::cpu_pool
