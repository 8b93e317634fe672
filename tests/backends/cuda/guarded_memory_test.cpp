// Guarded memory over fake addresses. Needs no GPU.
#include "backends/cuda/memory/guarded_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

#include "backends/cuda/memory/pool.h"
#include "tests/core/random_seed.h"

namespace mytorch::cuda {
namespace {

constexpr size_t kUnit = GuardedMemory::kUnit;

// Addresses of which each unit of 2 MiB has memory or not.
struct FakeAddresses {
  static constexpr size_t kSpan = 64 * kUnit;
  size_t capacity = SIZE_MAX;
  size_t mapped = 0;
  bool waits = true;
  uintptr_t next = uintptr_t{1} << 40;
  std::map<char*, size_t> mappings;

  GuardedMemory::Source source() {
    GuardedMemory::Source source{};
    source.self = this;
    source.span = kSpan;
    source.reserve = [](void* self) {
      auto& fake = *static_cast<FakeAddresses*>(self);
      void* base = reinterpret_cast<void*>(fake.next);
      fake.next += kSpan;
      return base;
    };
    source.map = [](void* self, void* at, size_t bytes) {
      auto& fake = *static_cast<FakeAddresses*>(self);
      EXPECT_EQ(bytes % kUnit, 0u);
      if (bytes > fake.capacity - fake.mapped) return false;
      for (size_t i = 0; i < bytes; i += kUnit) {
        EXPECT_FALSE(fake.has_memory(static_cast<char*>(at) + i)) << "mapped twice";
      }
      fake.mappings[static_cast<char*>(at)] = bytes;
      fake.mapped += bytes;
      return true;
    };
    source.unmap = [](void* self, void* at, size_t bytes) {
      auto& fake = *static_cast<FakeAddresses*>(self);
      EXPECT_EQ(fake.mappings.at(static_cast<char*>(at)), bytes) << "not as it was mapped";
      fake.mappings.erase(static_cast<char*>(at));
      fake.mapped -= bytes;
      return true;
    };
    source.wait = [](void* self) { return static_cast<FakeAddresses*>(self)->waits; };
    return source;
  }
  bool has_memory(const char* at) const {
    auto next_one = mappings.upper_bound(const_cast<char*>(at));
    if (next_one == mappings.begin()) return false;
    --next_one;
    return at < next_one->first + next_one->second;
  }
};

char* bytes_of(void* data) { return static_cast<char*>(data); }

TEST(GuardedMemory, EachSideOfABlockIsCheckedInTurn) {
  const uint64_t seed = testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  FakeAddresses fake;
  GuardedMemory memory(fake.source());
  int at_end = 0, at_begin = 0;
  std::map<char*, size_t> live;
  for (int i = 0; i < 400; ++i) {
    const size_t size = 1 + random() % (random() % 2 == 0 ? 5000 : 9 * kUnit);
    char* data = bytes_of(memory.take(size));
    ASSERT_NE(data, nullptr);
    for (const auto& [other, bytes] : live) {
      EXPECT_TRUE(data + size <= other || other + bytes <= data) << "two blocks share memory";
    }
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % GuardedMemory::kAlignment, 0u);
    for (size_t k = 0; k < size; k += 4096) EXPECT_TRUE(fake.has_memory(data + k));
    EXPECT_TRUE(fake.has_memory(data + size - 1));
    at_end += !fake.has_memory(data + (size + 15) / 16 * 16);
    at_begin += !fake.has_memory(data - 1);
    live[data] = size;
    if (live.size() > 6) {
      const auto oldest = std::next(live.begin(), static_cast<long>(random() % live.size()));
      memory.give_back(oldest->first);
      live.erase(oldest);
    }
  }
  EXPECT_GE(at_end, 200);
  EXPECT_GE(at_begin, 200);
}

TEST(GuardedMemory, ReusesTheOldestOnceTheDeviceIsDone) {
  FakeAddresses fake;
  GuardedMemory memory(fake.source());
  char* first = bytes_of(memory.take(kUnit));
  char* second = bytes_of(memory.take(kUnit));
  memory.give_back(first);
  memory.give_back(second);
  fake.waits = false;
  EXPECT_NE(memory.take(kUnit), first) << "the device may still use it";
  fake.waits = true;
  EXPECT_EQ(memory.take(100), first);
  EXPECT_EQ(memory.take(100), second + kUnit - 112);
  EXPECT_EQ(fake.mapped, 3 * kUnit);
}

TEST(GuardedMemory, FreeBlocksOfOtherSizesGiveTheirMemory) {
  FakeAddresses fake;
  fake.capacity = 4 * kUnit;
  GuardedMemory memory(fake.source());
  void* large = memory.take(3 * kUnit);
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(memory.take(2 * kUnit), nullptr);
  memory.give_back(large);
  void* other = memory.take(2 * kUnit);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(memory.take(3 * kUnit), nullptr);
  memory.give_back(other);
  EXPECT_NE(memory.take(3 * kUnit), nullptr);
  EXPECT_EQ(memory.take(SIZE_MAX), nullptr);
  EXPECT_EQ(memory.take(0), nullptr);
}

// The pool passes exact sizes on, and does not keep a block.
TEST(GuardedMemory, ServesAPool) {
  FakeAddresses fake;
  GuardedMemory memory(fake.source());
  SegmentSource source{};
  source.self = &memory;
  source.take = [](void* self, size_t bytes) {
    return static_cast<GuardedMemory*>(self)->take(bytes);
  };
  source.give_back = [](void* self, void* data) {
    static_cast<GuardedMemory*>(self)->give_back(data);
  };
  Pool pool(source, PoolSettings::parse("guarded"));
  int stream = 0;
  char* first = bytes_of(pool.allocate(100, &stream));
  EXPECT_FALSE(fake.has_memory(first + 112));
  EXPECT_EQ(pool.stats().used, 100u);
  pool.release(first, &stream);
  EXPECT_EQ(pool.stats().reserved, 0u);
  char* second = bytes_of(pool.allocate(700, &stream));
  EXPECT_FALSE(fake.has_memory(second - 1));
  pool.release(second, &stream);
  EXPECT_EQ(pool.stats().segments, 0u);
}

}  // namespace
}  // namespace mytorch::cuda
