#include "core/runtime/cpu_pool.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

// A sanitizer must see every block come and go, or it could not see its misuse.
#if defined(__SANITIZE_ADDRESS__)
#define MYTORCH_POOLED 0
#else
#define MYTORCH_POOLED 1
#endif

namespace mytorch::cpu_pool {
namespace {

constexpr size_t kAlignment = 64;
// Size classes: four per power of two, so at most a quarter of a block is lost.
// Class c = 4*log2 + quarter stands for (4 + quarter) << (log2 - 2) bytes.
constexpr int kSmallLimit = 1 << 16;           // up to here blocks are cached per thread
constexpr size_t kThreadCacheBytes = 1 << 20;  // per thread, for all classes together
constexpr size_t kLargeCacheBytes = size_t{4} << 30;

uint16_t class_of(size_t bytes) {
  if (bytes <= 64) return 4 * 6;
  const int log2 = std::bit_width(bytes - 1) - 1;  // 2^log2 < bytes <= 2^(log2+1)
  const size_t quarter = size_t{1} << (log2 - 2);
  const size_t step = (bytes - 1 - (size_t{1} << log2)) / quarter;  // 0..3
  return static_cast<uint16_t>(4 * log2 + step + 1);
}

size_t bytes_of(uint16_t size_class) {
  const int log2 = size_class / 4;
  return (size_t{1} << log2) + (size_t{size_class} % 4) * (size_t{1} << (log2 - 2));
}

struct FreeBlock {
  FreeBlock* next;
};

constexpr int kNumSmallClasses = 4 * 16 + 1;  // up to 64 KiB
constexpr int kNumClasses = 4 * 48;

// Plain data, so that access needs no initialization check; the Reaper below frees it.
struct ThreadCache {
  FreeBlock* free[kNumSmallClasses];
  size_t bytes;
  bool watched;
  bool dead;
};
thread_local constinit ThreadCache cache __attribute__((tls_model("initial-exec"))) = {};

void empty_thread_cache() {
  for (FreeBlock*& head : cache.free) {
    while (head != nullptr) std::free(std::exchange(head, head->next));
  }
  cache.bytes = 0;
}

struct Reaper {
  ~Reaper() {
    empty_thread_cache();
    cache.dead = true;
  }
  void touch() {}
};
thread_local Reaper reaper;

struct LargeCache {
  std::mutex mutex;
  std::vector<void*> free[kNumClasses];
  Stats stats;
};
LargeCache& large() {
  static LargeCache* const instance = new LargeCache;
  return *instance;
}

void* fresh_block(size_t bytes) {
  // Large blocks begin on a huge page, and ask for them: a tenth of the faults and TLB misses.
  constexpr size_t kHugePage = size_t{2} << 20;
  const bool huge = bytes >= 2 * kHugePage;
  void* block = std::aligned_alloc(huge ? kHugePage : kAlignment,
                                   huge ? (bytes + kHugePage - 1) / kHugePage * kHugePage : bytes);
  if (huge && block != nullptr) madvise(block, bytes, MADV_HUGEPAGE);
  return block;
}

void* allocate_large(size_t bytes, uint16_t size_class) {
  LargeCache& l = large();
  {
    std::lock_guard<std::mutex> lock(l.mutex);
    l.stats.large_in_use += bytes;
    auto& list = l.free[size_class];
    if (!list.empty()) {
      void* block = list.back();
      list.pop_back();
      l.stats.large_cached -= bytes;
      return block;
    }
  }
  void* block = fresh_block(bytes);
  if (block == nullptr) {
    trim();
    block = fresh_block(bytes);
  }
  if (block == nullptr) {
    std::lock_guard<std::mutex> lock(l.mutex);
    l.stats.large_in_use -= bytes;
  }
  return block;
}

void release_large(void* block, uint16_t size_class) {
  const size_t bytes = bytes_of(size_class);
  LargeCache& l = large();
  {
    std::lock_guard<std::mutex> lock(l.mutex);
    l.stats.large_in_use -= bytes;
    if (l.stats.large_cached + bytes <= kLargeCacheBytes) {
      l.free[size_class].push_back(block);
      l.stats.large_cached += bytes;
      return;
    }
  }
  std::free(block);
}

}  // namespace

void* allocate(size_t bytes, uint16_t* size_class) {
  if (bytes > (size_t{1} << 46)) return nullptr;
  const uint16_t c = class_of(bytes);
  *size_class = c;
  if (!MYTORCH_POOLED) return std::aligned_alloc(kAlignment, (bytes + 63) / 64 * 64);
  if (c < kNumSmallClasses) [[likely]] {
    if (FreeBlock* block = cache.free[c]; block != nullptr) [[likely]] {
      cache.free[c] = block->next;
      cache.bytes -= bytes_of(c);
      return block;
    }
    return std::aligned_alloc(kAlignment, (bytes_of(c) + 63) / 64 * 64);
  }
  return allocate_large(bytes_of(c), c);
}

void release(void* block, uint16_t size_class) {
  if (!MYTORCH_POOLED) return std::free(block);
  if (size_class >= kNumSmallClasses) return release_large(block, size_class);
  const size_t bytes = bytes_of(size_class);
  if (cache.dead || cache.bytes + bytes > kThreadCacheBytes) [[unlikely]] return std::free(block);
  if (!cache.watched) [[unlikely]] {
    cache.watched = true;
    reaper.touch();
  }
  auto* free_block = static_cast<FreeBlock*>(block);
  free_block->next = cache.free[size_class];
  cache.free[size_class] = free_block;
  cache.bytes += bytes;
}

void trim() {
  empty_thread_cache();
  LargeCache& l = large();
  std::lock_guard<std::mutex> lock(l.mutex);
  for (auto& list : l.free) {
    for (void* block : list) std::free(block);
    list.clear();
  }
  l.stats.large_cached = 0;
}

Stats stats() {
  LargeCache& l = large();
  std::lock_guard<std::mutex> lock(l.mutex);
  return l.stats;
}

}  // namespace mytorch::cpu_pool
