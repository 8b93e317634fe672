// The caching allocator of one device. Memory comes from CUDA in segments and stays here: a block
// that is released is handed out again to the stream that had it, without asking CUDA and without
// waiting, because what that stream does next comes after what it did before.
//
//   up to 256 KiB  blocks of multiples of 512 bytes, cut from segments of 2 MiB
//   up to 10 MiB   blocks cut from segments of 20 MiB
//   beyond         segments of their own, rounded up to 2 MiB
//
// A released block joins its free neighbours. Where CUDA has no memory left, segments that are free
// as a whole go back to it, and it is asked once more.
//
// While a stream is recorded into a graph, its blocks come from segments of the graph's own, which
// serve nothing else while it lives: its replays use them whenever they run.
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

// MYTORCH_CUDA_ALLOC: "off", "async", or a list of "max_split_size=MIB", "collect_above=FRACTION"
// and "expandable", separated by commas.
struct PoolSettings {
  bool caching = true;
  bool async = false;       // CUDA's own pool, cudaMallocAsync, in place of this one
  bool expandable = false;  // segments that grow, of virtual addresses
  // Free blocks of this size and more are not cut for smaller requests.
  size_t max_split_size = SIZE_MAX;
  // Of the device's memory: beyond it, free segments go back before another one is taken, those
  // that have been free for the longest first.
  double collect_above = 1;

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
  bool (*idle)(void* self, void* stream);              // nothing is queued
  // The number of the graph that a stream is being recorded into, 0 where there is none. Asked only
  // between begin_recording and end_recording.
  uint64_t (*graph_of)(void* self, void* stream);
  // Of segments that grow: addresses for all the memory of a device (NULL where there are none) and
  // their return; memory behind the first `mapped` bytes of them, in multiples of 2 MiB (false:
  // there is none), and the return of what was mapped as one piece (false: not now).
  void* (*reserve)(void* self);
  void (*unreserve)(void* self, void* base);
  bool (*map)(void* self, void* base, size_t mapped, size_t bytes);
  bool (*unmap)(void* self, void* base, size_t mapped, size_t bytes);
  void* self;
  size_t total = SIZE_MAX;  // bytes of the device
};

struct PoolStats {
  size_t used = 0;      // bytes that are handed out, rounded as above
  size_t reserved = 0;  // bytes of all segments
  size_t used_peak = 0;
  size_t reserved_peak = 0;
  size_t largest_free = 0;
  uint64_t blocks = 0;    // handed out
  uint64_t segments = 0;  // held
  uint64_t taken = 0;     // segments, from CUDA so far
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
  // it is handed out again when `stream` has come so far. False: the memory is not from here.
  bool release(void* data, void* stream);

  // Gives every segment back that is free as a whole; waits for streams that still use one.
  void trim();

  // A stream begins to be recorded into a graph; has been; the graph is gone. From its end on, the
  // graph's segments go back as soon as they are free.
  void begin_recording();
  void end_recording();
  void end_of_graph(uint64_t graph);
  // A stream is gone, and all of its work done. What is its own goes back as it becomes free.
  void end_of_stream(void* stream);

  PoolStats stats();
  void reset_peaks();
  size_t cached();        // bytes that are reserved and free
  std::string line();     // for error messages: what is in use, what is cached
  std::string summary();  // for people: that and each stream's and graph's share

 private:
  static constexpr size_t kGranule = 512;
  static constexpr size_t kSmall = size_t{256} << 10;  // the largest of the small blocks
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
    uint64_t released = 0;  // when, by the pool's count
    bool small = false;
    bool free = false;
    bool grown = false;  // of a segment that grows
    bool whole() const { return before == nullptr && after == nullptr && !grown; }
  };
  struct Larger {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  // A segment that grows: it gets more memory behind its end, and gives it back from there.
  struct Growing {
    char* base = nullptr;
    size_t mapped = 0;
    Block* last = nullptr;
    std::vector<size_t> pieces;  // as they were mapped
  };
  // The segments of a stream, or of a stream while it was recorded into a graph; the free blocks.
  struct Arena {
    void* stream;
    uint64_t graph = 0;
    bool ended = false;  // the graph or the stream is gone
    size_t used = 0, used_peak = 0, reserved = 0;
    uint64_t blocks = 0, segments = 0;
    std::array<Growing, 2> growing;  // of large and small blocks
    // Small ones by their size in granules; a bit says which bins have one, a bit of the second
    // level which words have a bit.
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
  // Released on a stream while that was recorded, so that no event can be behind its work yet.
  struct Deferred {
    Block* block;
    void* stream;
  };

  Arena& arena_of(void* stream);
  Block* new_block();
  void delete_block(Block* block);
  Block* find_free(Arena& arena, size_t bytes);
  Block* new_segment(Arena& arena, size_t bytes);
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
  std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  Arena* last_ = nullptr;
  AddressMap<Block> by_address_;
  std::deque<Pending> pending_;
  std::vector<Deferred> deferred_;
  int recordings_ = 0;
  uint64_t releases_ = 0;
  std::vector<std::unique_ptr<Block[]>> block_slabs_;
  Block* unused_ = nullptr;
  PoolStats stats_;
};

}  // namespace mytorch::cuda
