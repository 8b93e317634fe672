// The caching allocator of one device. It takes segments from CUDA and keeps them: a released block
// is reused by the same stream without a call to CUDA and without waiting, because the stream's
// later work runs after its earlier work.
//
//   up to 256 KiB  blocks of multiples of 512 bytes, cut from segments of 2 MiB
//   up to 10 MiB   blocks cut from segments of 20 MiB
//   beyond         segments of their own, rounded up to 2 MiB
//
// A released block merges with its free neighbours. If CUDA is out of memory, the pool returns the
// segments that are entirely free and tries again.
//
// While a stream is being captured into a graph, its blocks come from segments of that graph. These
// serve nothing else during the graph's lifetime, because its replays use them at any time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backends/cuda/memory/address_map.h"

namespace mytorch::cuda {

// Settings from MYTORCH_CUDA_ALLOC: "async", or a comma-separated list of "limit=MIB" and "off",
// "guarded", or any of "max_split_size=MIB", "collect_above=FRACTION" and "expandable".
struct PoolSettings {
  bool caching = true;
  bool guarded = false;     // no caching; blocks of GuardedMemory (guarded_memory.h)
  bool async = false;       // cudaMallocAsync instead of this pool
  bool expandable = false;  // expandable segments of virtual memory
  // Free blocks of at least this size are not split for smaller requests.
  size_t max_split_size = SIZE_MAX;
  // A fraction of the device's memory. Beyond it, the pool returns free segments, the least
  // recently used first, before it takes another one.
  double collect_above = 1;
  // The most that the pool holds. Beyond it, it is out of memory.
  size_t limit = SIZE_MAX;

  // Parses the value of MYTORCH_CUDA_ALLOC; NULL gives the defaults. Throws std::invalid_argument.
  static PoolSettings parse(const char* text);
};

// The source of segments: CUDA, or a fake in tests.
struct SegmentSource {
  void* (*take)(void* self, size_t bytes);  // NULL if out of memory
  void (*give_back)(void* self, void* data);
  // Records an event on a stream, and tests or, if `wait`, waits for it.
  void* (*record)(void* self, void* stream);
  bool (*passed)(void* self, void* event, bool wait);  // true also releases `event`
  bool (*idle)(void* self, void* stream);              // the stream has no pending work
  // Returns the id of the graph into which a stream is being captured, 0 if it is not. Called only
  // between begin_capture and end_capture.
  uint64_t (*graph_of)(void* self, void* stream);
  // For expandable segments. reserve() returns addresses for all of the device's memory (NULL if
  // there are none), unreserve() releases them. map() maps memory after the first `mapped` bytes,
  // in multiples of 2 MiB, and returns false if out of memory. unmap() unmaps a range as it was
  // mapped and returns false if it cannot now.
  void* (*reserve)(void* self);
  void (*unreserve)(void* self, void* base);
  bool (*map)(void* self, void* base, size_t mapped, size_t bytes);
  bool (*unmap)(void* self, void* base, size_t mapped, size_t bytes);
  void* self;
  size_t total = SIZE_MAX;  // bytes of device memory
};

struct PoolStats {
  size_t used = 0;      // bytes in use, rounded as above
  size_t reserved = 0;  // bytes of all segments
  size_t used_peak = 0;
  size_t reserved_peak = 0;
  size_t largest_free = 0;
  uint64_t blocks = 0;    // in use
  uint64_t segments = 0;  // held
  uint64_t taken = 0;     // segments taken from CUDA so far
  uint64_t retries = 0;   // requests for which free segments were returned first
  uint64_t failures = 0;
};

class Pool {
 public:
  Pool(const SegmentSource& source, const PoolSettings& settings)
      : source_(source), settings_(settings), round_(settings.guarded ? 1 : kGranule) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Returns memory for use on `stream`, aligned to 512 bytes (guarded memory to 16); NULL if out of
  // memory or for 0 bytes.
  void* allocate(size_t bytes, void* stream);
  // Releases memory last used on `stream`. If that is not the stream for which it was allocated, it
  // is reused once `stream` has passed this point. Returns false if the memory is not from this
  // pool.
  bool release(void* data, void* stream);

  // Returns all entirely free segments to CUDA; waits for streams that still use one.
  void trim();

  // Announce that a capture begins, that it has ended, and that its graph has been destroyed. After
  // end_of_graph(), the graph's segments are returned as soon as they are free.
  void begin_capture();
  void end_capture();
  void end_of_graph(uint64_t graph);
  // Announces that a stream has been destroyed after all of its work finished. Its segments are
  // returned as they become free.
  void end_of_stream(void* stream);

  PoolStats stats();
  void reset_peaks();
  size_t cached();        // free bytes in reserved segments
  std::string line();     // a one-line summary for error messages
  std::string summary();  // a report with the share of each stream and graph

 private:
  static constexpr size_t kGranule = 512;
  static constexpr size_t kSmall = size_t{256} << 10;  // the largest small block
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
    Block* previous = nullptr;  // in the bin of a small free block; `next` also links unused blocks
    Block* next = nullptr;
    uint64_t released = 0;  // the value of releases_ at that time
    bool small = false;
    bool free = false;
    bool grown = false;  // of an expandable segment
    bool whole() const { return before == nullptr && after == nullptr && !grown; }
  };
  struct Larger {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  // An expandable segment: memory is mapped and unmapped at its end.
  struct Growing {
    char* base = nullptr;
    size_t mapped = 0;
    Block* last = nullptr;
    std::vector<size_t> pieces;  // the sizes of the mappings
  };
  // The segments and free blocks of a stream, or of a graph captured on a stream.
  struct Arena {
    void* stream;
    uint64_t graph = 0;
    bool ended = false;  // the graph or stream has been destroyed
    size_t used = 0, used_peak = 0, reserved = 0;
    uint64_t blocks = 0, segments = 0;
    std::array<Growing, 2> growing;  // for large and for small blocks
    // Small free blocks by size in granules. A two-level bitmap marks the bins that are not empty.
    std::array<Block*, kBins + 1> bins{};
    std::array<uint64_t, kBins / 64 + 1> filled{};
    std::array<uint64_t, kBins / 64 / 64 + 1> words{};
    std::set<Block*, Larger> large;
    bool lasts() const { return graph != 0 && !ended; }
  };
  struct Pending {
    Block* block;
    void* event;
  };
  // A block released on a stream during its capture, when no event can be recorded after its work.
  struct Deferred {
    Block* block;
    void* stream;
  };

  Arena& arena_of(void* stream);
  Block* new_block();
  void delete_block(Block* block);
  Block* find_free(Arena& arena, size_t bytes);
  Block* new_segment(Arena& arena, size_t bytes);
  bool may_hold(size_t bytes) const;
  Block* from_source(Arena& arena, size_t bytes, bool small);
  Block* grow(Arena& arena, size_t bytes, bool small);
  void shrink(Arena& arena, Growing& growing);
  void count_segment(Arena& arena, size_t bytes);
  void absorb(Block* left, Block* right);
  static size_t bin_of(const Block* block) { return std::min(block->bytes / kGranule, kBins); }
  void cut(Block* block, size_t bytes);
  void insert(Block* block);
  void remove(Block* block);
  void merge_and_insert(Block* block);
  void collect(bool wait);
  void give_back(Block* block);
  void give_back_free();
  void give_back_free(Arena& arena);
  void give_back_oldest(size_t bytes);
  void drop_ended();
  template <class Which>
  void end(Which&& which);

  const SegmentSource source_;
  const PoolSettings settings_;
  const size_t round_;  // sizes are multiples of it
  std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  Arena* last_ = nullptr;
  AddressMap<Block> by_address_;
  std::deque<Pending> pending_;
  std::vector<Deferred> deferred_;
  int captures_ = 0;
  uint64_t releases_ = 0;
  std::vector<std::unique_ptr<Block[]>> block_slabs_;
  Block* unused_ = nullptr;
  PoolStats stats_;
};

}  // namespace mytorch::cuda
