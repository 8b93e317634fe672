// The caching allocator, over memory that only counts: no GPU is needed.
#include "backends/cuda/runtime/pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

namespace mytorch::cuda {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Addresses without memory behind them, of a device with `capacity` bytes; events that come when
// the test says so.
struct FakeMemory {
  size_t capacity = SIZE_MAX;
  size_t used = 0;
  uintptr_t next = 1 << 21;
  std::map<void*, size_t> segments;
  std::set<void*> passed_events;
  uintptr_t events = 0;
  bool pass_all = false;

  SegmentSource source() {
    SegmentSource source{};
    source.self = this;
    source.take = [](void* self, size_t bytes) -> void* {
      auto& memory = *static_cast<FakeMemory*>(self);
      if (bytes > memory.capacity - memory.used) return nullptr;
      void* data = reinterpret_cast<void*>(memory.next);
      memory.next += (bytes + 2 * kMiB) / kMiB * kMiB;
      memory.used += bytes;
      memory.segments[data] = bytes;
      return data;
    };
    source.give_back = [](void* self, void* data) {
      auto& memory = *static_cast<FakeMemory*>(self);
      ASSERT_EQ(memory.segments.count(data), 1u) << "not the beginning of a segment";
      memory.used -= memory.segments[data];
      memory.segments.erase(data);
    };
    source.record = [](void* self, void*) {
      return reinterpret_cast<void*>(++static_cast<FakeMemory*>(self)->events);
    };
    source.passed = [](void* self, void* event, bool wait) {
      auto& memory = *static_cast<FakeMemory*>(self);
      return wait || memory.pass_all || memory.passed_events.count(event) != 0;
    };
    return source;
  }
};

int streams[2];
void* const kA = &streams[0];
void* const kB = &streams[1];

TEST(Pool, HandsOutAgainWhatItsStreamReleased) {
  FakeMemory memory;
  Pool pool(memory.source(), {});
  void* first = pool.allocate(100, kA);
  ASSERT_NE(first, nullptr);
  pool.release(first, kA);
  EXPECT_EQ(pool.allocate(500, kA), first);
  void* second = pool.allocate(500, kA);
  EXPECT_EQ(static_cast<char*>(second) - static_cast<char*>(first), 512);
  EXPECT_EQ(memory.segments.size(), 1u);
  pool.release(first, kA);
  EXPECT_NE(pool.allocate(100, kB), first) << "another stream may still run behind";
  EXPECT_EQ(memory.segments.size(), 2u);
}

TEST(Pool, SegmentsAreAsLargeAsTheHeaderSays) {
  const std::pair<size_t, size_t> sizes[] = {
      {1, 2 * kMiB},          {kMiB, 2 * kMiB},           {kMiB + 1, 20 * kMiB},
      {10 * kMiB, 20 * kMiB}, {10 * kMiB + 1, 12 * kMiB}, {100 * kMiB, 100 * kMiB}};
  for (const auto& [asked, taken] : sizes) {
    FakeMemory memory;
    Pool pool(memory.source(), {});
    ASSERT_NE(pool.allocate(asked, kA), nullptr);
    EXPECT_EQ(pool.stats().reserved, taken) << asked;
  }
  FakeMemory memory;
  Pool pool(memory.source(), {});
  EXPECT_EQ(pool.allocate(0, kA), nullptr);
  EXPECT_EQ(pool.allocate(SIZE_MAX - 5, kA), nullptr);
}

TEST(Pool, NeighboursJoin) {
  FakeMemory memory;
  Pool pool(memory.source(), {});
  for (const size_t bytes : {size_t{600}, 3 * kMiB}) {  // of either kind
    std::vector<void*> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(pool.allocate(bytes, kA));
    for (const int i : {1, 3, 5, 0, 2, 4}) pool.release(blocks[static_cast<size_t>(i)], kA);
  }
  EXPECT_EQ(pool.stats().blocks, 0u);
  EXPECT_EQ(pool.stats().used, 0u);
  // One free block is as large as all of them: no new segment.
  const uint64_t before = pool.stats().segments;
  EXPECT_NE(pool.allocate(kMiB, kA), nullptr);
  EXPECT_NE(pool.allocate(18 * kMiB, kA), nullptr);
  EXPECT_EQ(pool.stats().segments, before);
}

TEST(Pool, MemoryUsedByAnotherStreamWaitsForIt) {
  FakeMemory memory;
  Pool pool(memory.source(), {});
  void* data = pool.allocate(2 * kMiB, kA);
  pool.release(data, kB);
  EXPECT_NE(pool.allocate(2 * kMiB, kA), data);
  memory.passed_events.insert(reinterpret_cast<void*>(memory.events));
  EXPECT_EQ(pool.allocate(2 * kMiB, kA), data);
}

TEST(Pool, GivesCachedMemoryBackBeforeItFails) {
  FakeMemory memory;
  memory.capacity = 100 * kMiB;
  Pool pool(memory.source(), {});
  void* a = pool.allocate(40 * kMiB, kA);
  void* b = pool.allocate(40 * kMiB, kA);
  pool.release(a, kA);
  EXPECT_EQ(pool.allocate(70 * kMiB, kA), nullptr) << "there is not that much";
  EXPECT_EQ(pool.stats().failures, 1u);
  pool.release(b, kB);  // waited for
  EXPECT_NE(pool.allocate(70 * kMiB, kA), nullptr);
  EXPECT_EQ(pool.stats().retries, 2u);
  EXPECT_LE(memory.used, memory.capacity);
}

TEST(Pool, LargeBlocksAreNotCutBeyondTheLimit) {
  for (const bool limited : {false, true}) {
    FakeMemory memory;
    PoolSettings settings;
    if (limited) settings = PoolSettings::parse("max_split_size=64");
    Pool pool(memory.source(), settings);
    void* large = pool.allocate(100 * kMiB, kA);
    pool.release(large, kA);
    EXPECT_EQ(pool.allocate(30 * kMiB, kA) == large, !limited);
    EXPECT_EQ(pool.allocate(96 * kMiB, kA) == large, limited);
  }
}

TEST(Pool, Settings) {
  EXPECT_TRUE(PoolSettings::parse(nullptr).caching);
  EXPECT_FALSE(PoolSettings::parse("off").caching);
  EXPECT_EQ(PoolSettings::parse("max_split_size=20").max_split_size, 20 * kMiB);
  for (const char* text : {"on", "max_split_size=", "max_split_size=19", "max_split_size=64MB"}) {
    EXPECT_THROW(PoolSettings::parse(text), std::invalid_argument) << text;
  }
  FakeMemory memory;
  Pool pool(memory.source(), PoolSettings::parse("off"));
  void* data = pool.allocate(1000, kA);
  EXPECT_EQ(memory.used, 1024u);
  pool.release(data, kA);
  EXPECT_EQ(memory.used, 0u);
}

// Blocks that are handed out lie inside segments and never overlap, whatever happens.
TEST(Pool, Soak) {
  FakeMemory memory;
  memory.capacity = 700 * kMiB;
  Pool pool(memory.source(), {});
  std::mt19937 random(1);
  struct Block {
    size_t bytes;
    void* stream;
  };
  std::map<char*, Block> live;
  for (int i = 0; i < 40000; ++i) {
    memory.pass_all = random() % 4 == 0;
    void* stream = random() % 4 == 0 ? kB : kA;
    if (random() % 100 < 52 || live.empty()) {
      const size_t bytes = random() % 8 == 0 ? random() % (12 * kMiB) + 1 : random() % 5000 + 1;
      auto* data = static_cast<char*>(pool.allocate(bytes, stream));
      if (data == nullptr) continue;
      ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % 512, 0u);
      const auto after = live.lower_bound(data);
      ASSERT_TRUE(after == live.end() || data + bytes <= after->first);
      ASSERT_TRUE(after == live.begin() ||
                  std::prev(after)->first + std::prev(after)->second.bytes <= data);
      const auto segment = std::prev(memory.segments.upper_bound(data));
      ASSERT_LE(data + bytes, static_cast<char*>(segment->first) + segment->second);
      live[data] = {bytes, stream};
    } else {
      auto chosen = std::next(live.begin(), static_cast<long>(random() % live.size()));
      pool.release(chosen->first, random() % 10 == 0 ? stream : chosen->second.stream);
      live.erase(chosen);
    }
    if (random() % 5000 == 0) pool.trim();
    ASSERT_EQ(pool.stats().blocks, live.size());
    ASSERT_EQ(pool.stats().reserved, memory.used);
  }
  for (const auto& [data, block] : live) pool.release(data, block.stream);
  pool.trim();
  EXPECT_EQ(pool.stats().used, 0u);
  EXPECT_TRUE(memory.segments.empty()) << "a segment was not joined";
}

}  // namespace
}  // namespace mytorch::cuda
