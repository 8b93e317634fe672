// The caching allocator of one device. Memory comes from CUDA in segments and stays here: a block
// that is released is handed out again to the stream that had it, without asking CUDA and without
// waiting, because what that stream does next comes after what it did before.
//
//   up to 1 MiB    blocks of multiples of 512 bytes, cut from segments of 2 MiB
//   up to 10 MiB   blocks cut from segments of 20 MiB
//   beyond         segments of their own, rounded up to 2 MiB
//
// A released block joins its free neighbours. Where CUDA has no memory left, segments that are free
// as a whole go back to it, and it is asked once more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backends/cuda/runtime/addresses.h"

namespace mytorch::cuda {

// MYTORCH_CUDA_ALLOC: "off", or "max_split_size=MIB".
struct PoolSettings {
  bool caching = true;
  // Free blocks of this size and more are not cut for smaller requests.
  size_t max_split_size = SIZE_MAX;

  // Throws std::invalid_argument with what is wrong in `text`; NULL gives the defaults.
  static PoolSettings parse(const char* text);
};

// Where segments come from; CUDA, or a test's own.
struct SegmentSource {
  void* (*take)(void* self, size_t bytes);  // NULL: there is no memory
  void (*give_back)(void* self, void* data);
  // An event behind all that was queued on a stream, and whether it has come; `wait` waits for it.
  void* (*record)(void* self, void* stream);
  bool (*passed)(void* self, void* event, bool wait);  // true: `event` is gone, too
  void* self;
};

struct PoolStats {
  size_t used = 0;      // bytes that are handed out, rounded as above
  size_t reserved = 0;  // bytes of all segments
  size_t used_peak = 0;
  size_t reserved_peak = 0;
  uint64_t blocks = 0;    // handed out
  uint64_t segments = 0;  // taken from CUDA so far
  uint64_t retries = 0;   // how often free segments had to be given back for a request
  uint64_t failures = 0;
};

class Pool {
 public:
  Pool(const SegmentSource& source, const PoolSettings& settings)
      : source_(source), settings_(settings) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Aligned to 512 bytes, for use on `stream`; NULL when out of memory, and for 0 bytes.
  void* allocate(size_t bytes, void* stream);
  // `stream` is where the memory was last used. Where that is not the stream it was allocated for,
  // it is handed out again when `stream` has come so far.
  void release(void* data, void* stream);

  // Gives every segment back that is free as a whole; waits for streams that still use one.
  void trim();

  PoolStats stats();
  size_t cached();        // bytes that are reserved and free
  std::string summary();  // for people: what is in use, what is cached

 private:
  static constexpr size_t kGranule = 512;
  static constexpr size_t kSmall = size_t{1} << 20;  // the largest of the small blocks
  static constexpr size_t kSmallSegment = size_t{2} << 20;
  static constexpr size_t kMedium = size_t{10} << 20;
  static constexpr size_t kMediumSegment = size_t{20} << 20;
  static constexpr size_t kRound = size_t{2} << 20;
  static constexpr size_t kBins = kSmallSegment / kGranule;

  struct Arena;
  struct Block {
    char* data;
    size_t bytes;
    Arena* arena;
    Block* before = nullptr;  // neighbours in the segment
    Block* after = nullptr;
    Block* previous =
        nullptr;  // in its bin, while it is free and small; `next` also links unused ones
    Block* next = nullptr;
    bool small = false;
    bool free = false;
    bool whole() const { return before == nullptr && after == nullptr; }
  };
  struct Larger {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  // The free blocks of a stream.
  struct Arena {
    void* stream;
    // Small ones by their size in granules; a bit says which bins have one, a bit of the second
    // level which words have a bit.
    std::array<Block*, kBins + 1> bins{};
    std::array<uint64_t, kBins / 64 + 1> filled{};
    std::array<uint64_t, kBins / 64 / 64 + 1> words{};
    std::set<Block*, Larger> large;
  };
  struct Pending {
    Block* block;
    void* event;
  };

  Arena& arena_of(void* stream);
  Block* new_block();
  void delete_block(Block* block);
  Block* find_free(Arena& arena, size_t bytes);
  Block* new_segment(Arena& arena, size_t bytes);
  Block* from_source(Arena& arena, size_t bytes, bool small);
  void cut(Block* block, size_t bytes);
  void insert(Block* block);
  void remove(Block* block);
  void merge_and_insert(Block* block);
  void collect(bool wait);
  void give_back_free();

  const SegmentSource source_;
  const PoolSettings settings_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  Arena* last_ = nullptr;
  AddressMap<Block> by_address_;
  std::deque<Pending> pending_;
  std::vector<std::unique_ptr<Block[]>> block_slabs_;
  Block* unused_ = nullptr;
  PoolStats stats_;
};

}  // namespace mytorch::cuda
