// The caching allocator over fake memory. Needs no GPU.
#include "backends/cuda/memory/pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

namespace mytorch::cuda {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Addresses without memory, on a device with `capacity` bytes. Tests decide when events complete.
struct FakeMemory {
  size_t capacity = SIZE_MAX;
  size_t used = 0;
  uintptr_t next = 1 << 21;
  std::map<void*, size_t> segments;
  std::set<void*> passed_events;
  uintptr_t events = 0;
  bool pass_all = false;
  std::set<void*> idle;
  std::map<void*, uint64_t> graphs;             // into which streams are captured
  std::map<void*, std::vector<size_t>> mapped;  // mappings of expandable segments
  uintptr_t next_reserved = uintptr_t{1} << 44;

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
    source.idle = [](void* self, void* stream) {
      return static_cast<FakeMemory*>(self)->idle.count(stream) != 0;
    };
    source.graph_of = [](void* self, void* stream) {
      auto& graphs = static_cast<FakeMemory*>(self)->graphs;
      const auto found = graphs.find(stream);
      return found == graphs.end() ? uint64_t{0} : found->second;
    };
    source.reserve = [](void* self) {
      auto& memory = *static_cast<FakeMemory*>(self);
      void* base = reinterpret_cast<void*>(memory.next_reserved);
      memory.next_reserved += uintptr_t{1} << 40;
      memory.mapped[base] = {};
      return base;
    };
    source.unreserve = [](void* self, void* base) {
      auto& memory = *static_cast<FakeMemory*>(self);
      ASSERT_EQ(memory.mapped.count(base), 1u);
      ASSERT_TRUE(memory.mapped[base].empty()) << "memory is still mapped";
      memory.mapped.erase(base);
    };
    source.map = [](void* self, void* base, size_t mapped, size_t bytes) {
      auto& memory = *static_cast<FakeMemory*>(self);
      EXPECT_EQ(bytes % (2 * kMiB), 0u);
      if (bytes > memory.capacity - memory.used) return false;
      size_t before = 0;
      for (const size_t piece : memory.mapped.at(base)) before += piece;
      EXPECT_EQ(before, mapped) << "not at the end";
      memory.mapped[base].push_back(bytes);
      memory.used += bytes;
      memory.segments[base] = mapped + bytes;
      return true;
    };
    source.unmap = [](void* self, void* base, size_t mapped, size_t bytes) {
      auto& memory = *static_cast<FakeMemory*>(self);
      EXPECT_EQ(memory.mapped.at(base).back(), bytes) << "not as it was mapped";
      memory.mapped[base].pop_back();
      memory.used -= bytes;
      memory.segments[base] = mapped;
      if (mapped == 0) memory.segments.erase(base);
      return true;
    };
    if (capacity != SIZE_MAX) source.total = capacity;
    return source;
  }
};

int streams[2];
void* const kA = &streams[0];
void* const kB = &streams[1];

TEST(Pool, ReusesABlockOnTheSameStreamOnly) {
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
  EXPECT_NE(pool.allocate(100, kB), first) << "the other stream may be behind";
  EXPECT_EQ(memory.segments.size(), 2u);
}

struct SegmentSize {
  const char* name;
  size_t asked, taken;
};
class SegmentSizes : public ::testing::TestWithParam<SegmentSize> {};

TEST_P(SegmentSizes, AreThoseOfTheHeader) {
  FakeMemory memory;
  Pool pool(memory.source(), {});
  ASSERT_NE(pool.allocate(GetParam().asked, kA), nullptr);
  EXPECT_EQ(pool.stats().reserved, GetParam().taken);
}
INSTANTIATE_TEST_SUITE_P(Pool, SegmentSizes,
                         ::testing::Values(SegmentSize{"OneByte", 1, 2 * kMiB},
                                           SegmentSize{"LargestSmall", kMiB / 4, 2 * kMiB},
                                           SegmentSize{"SmallestMedium", kMiB / 4 + 1, 20 * kMiB},
                                           SegmentSize{"LargestMedium", 10 * kMiB, 20 * kMiB},
                                           SegmentSize{"SmallestLarge", 10 * kMiB + 1, 12 * kMiB},
                                           SegmentSize{"Large", 100 * kMiB, 100 * kMiB}),
                         [](const auto& info) { return info.param.name; });

TEST(Pool, RefusesNoBytesAndTooMany) {
  FakeMemory memory;
  Pool pool(memory.source(), {});
  EXPECT_EQ(pool.allocate(0, kA), nullptr);
  EXPECT_EQ(pool.allocate(SIZE_MAX - 5, kA), nullptr);
}

TEST(Pool, FreeNeighboursMerge) {
  FakeMemory memory;
  Pool pool(memory.source(), {});
  for (const size_t bytes : {size_t{600}, 3 * kMiB}) {  // small and large
    std::vector<void*> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(pool.allocate(bytes, kA));
    for (const int i : {1, 3, 5, 0, 2, 4}) pool.release(blocks[static_cast<size_t>(i)], kA);
  }
  EXPECT_EQ(pool.stats().blocks, 0u);
  EXPECT_EQ(pool.stats().used, 0u);
  // The merged block is as large as all of them, so no new segment is taken.
  const uint64_t before = pool.stats().segments;
  for (int i = 0; i < 8; ++i) EXPECT_NE(pool.allocate(kMiB / 4, kA), nullptr);
  EXPECT_NE(pool.allocate(19 * kMiB, kA), nullptr);
  EXPECT_EQ(pool.stats().segments, before);
}

TEST(Pool, ABlockReleasedOnAnotherStreamIsReusedAfterItsEvent) {
  FakeMemory memory;
  Pool pool(memory.source(), {});
  void* data = pool.allocate(2 * kMiB, kA);
  pool.release(data, kB);
  EXPECT_NE(pool.allocate(2 * kMiB, kA), data);
  memory.passed_events.insert(reinterpret_cast<void*>(memory.events));
  EXPECT_EQ(pool.allocate(2 * kMiB, kA), data);
}

TEST(Pool, ABlockReleasedOnAnIdleStreamIsReusedAtOnce) {
  FakeMemory memory;
  memory.idle.insert(kB);
  Pool pool(memory.source(), {});
  void* data = pool.allocate(2 * kMiB, kA);
  pool.release(data, kB);
  EXPECT_EQ(memory.events, 0u);
  EXPECT_EQ(pool.allocate(2 * kMiB, kA), data);
}

TEST(Pool, ReturnsCachedMemoryBeforeItFails) {
  FakeMemory memory;
  memory.capacity = 100 * kMiB;
  Pool pool(memory.source(), {});
  void* a = pool.allocate(40 * kMiB, kA);
  void* b = pool.allocate(40 * kMiB, kA);
  pool.release(a, kA);
  EXPECT_EQ(pool.allocate(70 * kMiB, kA), nullptr) << "more than the capacity";
  EXPECT_EQ(pool.stats().failures, 1u);
  pool.release(b, kB);  // pending: the pool waits
  EXPECT_NE(pool.allocate(70 * kMiB, kA), nullptr);
  EXPECT_EQ(pool.stats().retries, 2u);
  EXPECT_LE(memory.used, memory.capacity);
}

TEST(Pool, BlocksAboveMaxSplitSizeAreNotSplit) {
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

TEST(PoolSettings, AreParsed) {
  EXPECT_TRUE(PoolSettings::parse(nullptr).caching);
  EXPECT_FALSE(PoolSettings::parse("off").caching);
  EXPECT_EQ(PoolSettings::parse("max_split_size=20").max_split_size, 20 * kMiB);
  const PoolSettings several =
      PoolSettings::parse("expandable,max_split_size=64,collect_above=0.5");
  EXPECT_TRUE(several.expandable);
  EXPECT_EQ(several.max_split_size, 64 * kMiB);
  EXPECT_EQ(several.collect_above, 0.5);
  EXPECT_TRUE(PoolSettings::parse("async").async);
  const PoolSettings guarded = PoolSettings::parse("guarded,limit=100");
  EXPECT_TRUE(guarded.guarded);
  EXPECT_EQ(guarded.limit, 100 * kMiB);
}

TEST(PoolSettings, ThrowForInvalidText) {
  for (const char* text : {"on", "max_split_size=", "max_split_size=19", "max_split_size=64MB",
                           "expandable,", "off,expandable", "collect_above=2", "limit=0",
                           "off,guarded", "async,limit=100", "limit=100,async"}) {
    EXPECT_THROW(PoolSettings::parse(text), std::invalid_argument) << text;
  }
}

TEST(Pool, KeepsNothingWithoutCaching) {
  FakeMemory memory;
  Pool pool(memory.source(), PoolSettings::parse("off"));
  void* data = pool.allocate(1000, kA);
  EXPECT_EQ(memory.used, 1024u);
  pool.release(data, kA);
  EXPECT_EQ(memory.used, 0u);
}

TEST(Pool, AGraphHasItsOwnSegments) {
  FakeMemory memory;
  Pool pool(memory.source(), {});
  void* before = pool.allocate(1000, kA);
  pool.release(before, kA);
  pool.begin_capture();
  memory.graphs[kA] = 7;
  void* first = pool.allocate(1000, kA);
  EXPECT_NE(first, before);
  pool.release(first, kA);
  void* second = pool.allocate(1000, kA);
  EXPECT_EQ(second, first) << "a capture reuses its own blocks";
  pool.release(second, kA);
  void* result = pool.allocate(3 * kMiB, kA);
  memory.graphs.clear();
  pool.end_capture();
  EXPECT_EQ(pool.allocate(1000, kA), before);
  for (int i = 0; i < 5000; ++i) {  // more than fit in a segment
    ASSERT_NE(pool.allocate(1000, kA), first) << "a replay writes there";
  }
  pool.trim();
  EXPECT_NE(pool.summary().find("graph 7"), std::string::npos) << pool.summary();
  const size_t held = memory.used;
  pool.end_of_graph(7);
  EXPECT_EQ(memory.used, held - 2 * kMiB) << "free segments are returned at once";
  pool.release(result, kA);
  EXPECT_EQ(memory.used, held - 22 * kMiB) << "the others when they become free";
  EXPECT_EQ(pool.summary().find("graph 7"), std::string::npos) << pool.summary();
}

// No event can follow captured work, so the block waits for the end of the capture.
TEST(Pool, ABlockReleasedDuringACaptureIsReusedAfterIt) {
  FakeMemory memory;
  memory.pass_all = true;
  Pool pool(memory.source(), {});
  void* data = pool.allocate(2 * kMiB, kB);
  pool.begin_capture();
  memory.graphs[kA] = 3;
  const uintptr_t events = memory.events;
  pool.release(data, kA);
  EXPECT_EQ(memory.events, events);
  EXPECT_NE(pool.allocate(2 * kMiB, kB), data);
  memory.graphs.clear();
  pool.end_capture();
  EXPECT_EQ(memory.events, events + 1);
  EXPECT_EQ(pool.allocate(2 * kMiB, kB), data);
}

// A later stream may have the same handle.
TEST(Pool, ADestroyedStreamReturnsItsSegments) {
  FakeMemory memory;
  Pool pool(memory.source(), {});
  void* held = pool.allocate(30 * kMiB, kA);
  void* cached = pool.allocate(50 * kMiB, kA);
  void* other = pool.allocate(70 * kMiB, kB);
  pool.release(cached, kA);
  pool.release(other, kB);
  pool.end_of_stream(kA);
  EXPECT_EQ(memory.used, 100 * kMiB) << "free segments";
  EXPECT_NE(pool.allocate(20 * kMiB, kA), nullptr);
  EXPECT_EQ(memory.used, 120 * kMiB);
  pool.release(held, kA);
  EXPECT_EQ(memory.used, 90 * kMiB) << "the others when they become free";
  EXPECT_EQ(pool.allocate(70 * kMiB, kB), other);
}

TEST(Pool, ReturnsTheOldestSegmentBeyondTheThreshold) {
  FakeMemory memory;
  memory.capacity = 1000 * kMiB;
  Pool pool(memory.source(), PoolSettings::parse("collect_above=0.5"));
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool.allocate(100 * kMiB, kA));
  for (const size_t i : {2, 0, 1}) pool.release(blocks[i], kA);
  EXPECT_NE(pool.allocate(150 * kMiB, kA), nullptr);
  EXPECT_EQ(memory.used, 450 * kMiB) << "one segment was returned";
  EXPECT_EQ(memory.segments.count(blocks[2]), 0u) << "the least recently used one";
}

TEST(Pool, HoldsNoMoreThanItsLimit) {
  for (const char* text : {"limit=100", "off,limit=100", "expandable,limit=100"}) {
    FakeMemory memory;
    memory.capacity = 1000 * kMiB;
    Pool pool(memory.source(), PoolSettings::parse(text));
    EXPECT_EQ(pool.allocate(120 * kMiB, kA), nullptr) << text;
    void* data = pool.allocate(80 * kMiB, kA);
    ASSERT_NE(data, nullptr) << text;
    EXPECT_EQ(pool.allocate(40 * kMiB, kB), nullptr) << text;
    EXPECT_EQ(pool.stats().failures, 2u) << text;
    pool.release(data, kA);
    EXPECT_NE(pool.allocate(40 * kMiB, kB), nullptr) << text << ": free segments are returned";
    EXPECT_LE(memory.used, 100 * kMiB) << text;
  }
}

TEST(Pool, ExpandableSegmentsServeGrowingRequests) {
  FakeMemory memory;
  memory.capacity = 400 * kMiB;
  Pool pool(memory.source(), PoolSettings::parse("expandable"));
  for (size_t mib = 20; mib <= 360; mib += 20) {  // fixed segments would need 3.4 GiB
    void* data = pool.allocate(mib * kMiB, kA);
    ASSERT_NE(data, nullptr) << mib;
    EXPECT_EQ(memory.used, mib * kMiB);
    pool.release(data, kA);
  }
  EXPECT_EQ(pool.stats().retries, 0u);
  void* small = pool.allocate(5000, kA);
  pool.trim();
  EXPECT_EQ(memory.used, 2 * kMiB);
  pool.release(small, kA);
}

// Blocks in use lie inside segments and never overlap.
class Soak : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Pool, Soak,
                         ::testing::Values("", "expandable", "collect_above=0.5",
                                           "expandable,max_split_size=20"));

TEST_P(Soak, BlocksNeverOverlap) {
  FakeMemory memory;
  memory.capacity = 700 * kMiB;
  Pool pool(memory.source(), PoolSettings::parse(GetParam()));
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
  EXPECT_TRUE(memory.segments.empty()) << "free blocks of a segment were not merged";
}

}  // namespace
}  // namespace mytorch::cuda
