#include "autograd/pool.h"

#include <atomic>
#include <utility>

#include "core/runtime/cpu_pool.h"
#include "core/types/errors.h"

namespace mytorch::autograd::pool {

thread_local constinit BlockCache cache __attribute__((tls_model("initial-exec"))) = {};

namespace {

// The class in core's pool of each of our sizes, known after the first block of the size.
std::atomic<uint16_t> core_class[kClasses];

struct BlockCacheReaper {
  ~BlockCacheReaper() {
    cache.watched = false;
    for (uint8_t c = 0; c < kClasses; ++c) {
      while (PooledBlock* block = cache.free[c]) {
        cache.free[c] = block->next;
        release_slow(block, c);
      }
    }
    cache.bytes = 0;
  }
  void watch() { cache.watched = true; }
};
thread_local BlockCacheReaper reaper;

}  // namespace

void* allocate_slow(size_t bytes, uint8_t* size_class) {
  const size_t c = (bytes - 1) / kStep;
  uint16_t wide = 0;
  void* block = cpu_pool::allocate(c < kClasses ? (c + 1) * kStep : bytes, &wide);
  if (block == nullptr) fail(ErrorCode::kOutOfMemory, "[autograd] out of memory");
  if (c < kClasses) {
    core_class[c].store(wide, std::memory_order_relaxed);
    reaper.watch();
  }
  // The classes of larger blocks in core's pool are above kClasses.
  *size_class = static_cast<uint8_t>(c < kClasses ? c : wide);
  return block;
}

void release_slow(void* block, uint8_t size_class) {
  cpu_pool::release(block, size_class < kClasses
                               ? core_class[size_class].load(std::memory_order_relaxed)
                               : size_class);
}

}  // namespace mytorch::autograd::pool
