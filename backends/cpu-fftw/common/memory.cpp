#include "backends/cpu-fftw/common/memory.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

namespace mytorch::fftw::internal {
namespace {

// Fresh memory costs as much as a transform: the system clears its pages.
constexpr int64_t kMostKept = int64_t{4} << 20;

void release(char* memory) { ::operator delete(memory, std::align_val_t(kAligned)); }

struct Kept {
  struct Block {
    char* memory = nullptr;
    int64_t bytes = 0;
  };
  std::array<Block, 2> blocks;  // a pass and a long line in it

  ~Kept() {
    for (const Block& block : blocks) release(block.memory);
  }
};
thread_local Kept kept;

}  // namespace

char* take_memory(int64_t* bytes) {
  *bytes = std::max<int64_t>(*bytes, 1);
  for (Kept::Block& block : kept.blocks) {
    if (block.bytes < *bytes) continue;
    *bytes = block.bytes;
    block.bytes = 0;
    return std::exchange(block.memory, nullptr);
  }
  return static_cast<char*>(
      ::operator new(static_cast<size_t>(*bytes), std::align_val_t(kAligned)));
}

void give_memory(char* memory, int64_t bytes) {
  Kept::Block& least = kept.blocks[kept.blocks[0].bytes <= kept.blocks[1].bytes ? 0 : 1];
  if (bytes > kMostKept || bytes <= least.bytes) return release(memory);
  release(least.memory);
  least = {memory, bytes};
}

}  // namespace mytorch::fftw::internal
