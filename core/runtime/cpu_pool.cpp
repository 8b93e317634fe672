#include "core/runtime/cpu_pool.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/runtime/host_memory.h"

namespace mytorch::cpu_pool {

namespace detail {
thread_local constinit ThreadCache cache __attribute__((tls_model("initial-exec"))) = {};
}  // namespace detail

namespace {

using detail::cache;
using detail::FreeBlock;

constexpr size_t kAlignment = 64;
constexpr size_t kThreadCacheBytes = 1 << 20;  // per thread, over all size classes
constexpr size_t kLargeCacheBytes = size_t{4} << 30;
// Clearing the pages of a larger block costs far more than asking how much memory is available.
constexpr size_t kCheckedBytes = size_t{1} << 30;
constexpr int kNumClasses = kFineClasses + 1 + 4 * 40;

uint16_t class_of(size_t bytes) {
  if (bytes <= kFineLimit) return static_cast<uint16_t>(bytes == 0 ? 1 : (bytes + 63) / 64);
  const int log2 = std::bit_width(bytes - 1) - 1;  // 2^log2 < bytes <= 2^(log2+1), log2 >= 10
  const size_t quarter = size_t{1} << (log2 - 2);
  const size_t step = (bytes - 1 - (size_t{1} << log2)) / quarter;  // 0..3
  return static_cast<uint16_t>(kFineClasses + 4 * (log2 - 10) + step + 1);
}

size_t bytes_of(uint16_t size_class) {
  if (size_class <= kFineClasses) return size_t{size_class} * 64;
  const int coarse = size_class - kFineClasses - 1;
  const int log2 = 10 + coarse / 4;
  return (size_t{1} << log2) + (size_t{1} + coarse % 4) * (size_t{1} << (log2 - 2));
}

void empty_thread_cache() {
  for (FreeBlock*& head : cache.free) {
    while (head != nullptr) std::free(std::exchange(head, head->next));
  }
  cache.bytes = 0;
}

struct CpuPoolReaper {
  ~CpuPoolReaper() {
    empty_thread_cache();
    cache.limit = 0;
    cache.dead = true;
  }
  void watch() { cache.limit = kThreadCacheBytes; }
};
thread_local CpuPoolReaper reaper;

struct LargeCache {
  std::mutex mutex;
  std::vector<void*> free[kNumClasses];
  CpuPoolStats stats;
};
LargeCache& large() {
  static LargeCache* const instance = new LargeCache;
  return *instance;
}

// Returns null if the block exceeds the available memory. The system would grant such a block, and
// end the process when it is written.
void* fresh_block(size_t bytes) {
  if (bytes >= kCheckedBytes && bytes > available_host_memory()) return nullptr;
  // Align large blocks to huge pages and request them: this saves nine tenths of the faults and TLB
  // misses.
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

void* detail::allocate_slow(size_t bytes, uint16_t* size_class) {
  if (bytes > (size_t{1} << 46)) return nullptr;
  const uint16_t c = class_of(bytes);
  *size_class = c;
  if (!kPooled) return fresh_block((bytes + 63) / 64 * 64);
  if (c >= kNumSmallClasses) return allocate_large(bytes_of(c), c);
  if (FreeBlock* block = cache.free[c]; block != nullptr) {
    cache.free[c] = block->next;
    cache.bytes -= bytes_of(c);
    return block;
  }
  return std::aligned_alloc(kAlignment, bytes_of(c));
}

void detail::release_slow(void* block, uint16_t size_class) {
  if (!kPooled) return std::free(block);
  if (size_class >= kNumSmallClasses) return release_large(block, size_class);
  if (cache.limit == 0 && !cache.dead) reaper.watch();
  const size_t bytes = cache.bytes + bytes_of(size_class);
  if (bytes > cache.limit) return std::free(block);
  auto* free_block = static_cast<FreeBlock*>(block);
  free_block->next = cache.free[size_class];
  cache.free[size_class] = free_block;
  cache.bytes = bytes;
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

CpuPoolStats stats() {
  LargeCache& l = large();
  std::lock_guard<std::mutex> lock(l.mutex);
  return l.stats;
}

}  // namespace mytorch::cpu_pool
