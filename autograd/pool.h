// Memory for nodes and metadata: a free list per size and thread, on top of core's pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

namespace mytorch::autograd::pool {

inline constexpr size_t kStep = 64;
inline constexpr uint8_t kClasses =
    12;  // class c: (c + 1) * kStep bytes; larger blocks: core's classes
// Per thread. Beyond it, blocks return to core's pool, which has its own limit.
inline constexpr size_t kMaxCachedBytes = size_t{8} << 20;

struct PooledBlock {
  PooledBlock* next;
};
// Trivially constructible, so that access needs no initialization check.
struct BlockCache {
  PooledBlock* free[kClasses];
  size_t bytes;
  bool watched;  // a destructor empties it at the end of the thread
};
extern thread_local constinit BlockCache cache __attribute__((tls_model("initial-exec")));

// Throws Error(kOutOfMemory).
void* allocate_slow(size_t bytes, uint8_t* size_class);
void release_slow(void* block, uint8_t size_class);

inline void* allocate(size_t bytes, uint8_t* size_class) {
  const size_t c = (bytes - 1) / kStep;
  if (c < kClasses) [[likely]] {
    if (PooledBlock* block = cache.free[c]; block != nullptr) [[likely]] {
      cache.free[c] = block->next;
      cache.bytes -= (c + 1) * kStep;
      *size_class = static_cast<uint8_t>(c);
      return block;
    }
  }
  return allocate_slow(bytes, size_class);
}

// The address sanitizer must see each allocation and release.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kCached = false;
#else
inline constexpr bool kCached = true;
#endif

inline void release(void* block, uint8_t size_class) {
  if (kCached && size_class < kClasses && cache.watched && cache.bytes < kMaxCachedBytes)
      [[likely]] {
    cache.bytes += (size_class + size_t{1}) * kStep;
    cache.free[size_class] = new (block) PooledBlock{cache.free[size_class]};
    return;
  }
  release_slow(block, size_class);
}

}  // namespace mytorch::autograd::pool
