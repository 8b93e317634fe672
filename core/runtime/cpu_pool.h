// A caching allocator for host memory. Small blocks are cached per thread, so that creating and
// destroying a tensor takes no lock. Large blocks are cached globally and keep their pages: the
// page faults of a fresh 64 MB block cost more than most kernels that fill it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mytorch::cpu_pool {

// Size classes are the multiples of 64 bytes up to 1 KiB, then four per power of two, so that at
// most a quarter of a block is unused.
inline constexpr size_t kFineLimit = 1024;
inline constexpr int kFineClasses = static_cast<int>(kFineLimit / 64);  // classes 1..16
inline constexpr int kNumSmallClasses = kFineClasses + 1 + 4 * 6;       // up to 64 KiB

namespace detail {
struct FreeBlock {
  FreeBlock* next;
};
// Plain data, so that access needs no initialization check.
struct ThreadCache {
  FreeBlock* free[kNumSmallClasses];
  size_t bytes;
  size_t limit;  // 0 before the thread's exit handler is installed and after it ran
  bool dead;
};
extern thread_local constinit ThreadCache cache __attribute__((tls_model("initial-exec")));

void* allocate_slow(size_t bytes, uint16_t* size_class);
void release_slow(void* block, uint16_t size_class);

// Under AddressSanitizer, every block is allocated and freed individually, so that misuse is
// detected.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kPooled = false;
#else
inline constexpr bool kPooled = true;
#endif
}  // namespace detail

// Returns a block of at least `bytes`, aligned to 64 bytes, and its size class for release().
// Returns null if memory is exhausted even after emptying the caches.
inline void* allocate(size_t bytes, uint16_t* size_class) {
  if (detail::kPooled && bytes <= kFineLimit) [[likely]] {
    const size_t c = (bytes + 63) / 64;
    if (detail::FreeBlock* block = detail::cache.free[c]; block != nullptr) [[likely]] {
      detail::cache.free[c] = block->next;
      detail::cache.bytes -= c * 64;
      *size_class = static_cast<uint16_t>(c);
      return block;
    }
  }
  return detail::allocate_slow(bytes, size_class);
}

inline void release(void* block, uint16_t size_class) {
  if (detail::kPooled && size_class <= kFineClasses) [[likely]] {
    const size_t bytes = size_t{size_class} * 64 + detail::cache.bytes;
    if (bytes <= detail::cache.limit) [[likely]] {
      auto* free_block = static_cast<detail::FreeBlock*>(block);
      free_block->next = detail::cache.free[size_class];
      detail::cache.free[size_class] = free_block;
      detail::cache.bytes = bytes;
      return;
    }
  }
  detail::release_slow(block, size_class);
}

// Returns cached blocks to the system: this thread's small blocks and all large blocks.
void trim();

struct CpuPoolStats {
  uint64_t large_in_use = 0;  // bytes
  uint64_t large_cached = 0;
};
CpuPoolStats stats();

}  // namespace mytorch::cpu_pool
