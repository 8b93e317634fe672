// The caches of plans and packed weights: contents, eviction, and sharing by threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "backends/cpu-onednn/engine/operand.h"
#include "backends/cpu-onednn/engine/packed_weights.h"
#include "backends/cpu-onednn/engine/plan_cache.h"

namespace mytorch::onednn {
namespace {

Key key_of(int64_t n) {
  Key key(7);
  key.number(n);
  return key;
}

Plan square_product(int64_t n) {
  const Desc square = describe_contiguous(sdk::dtype_of<float>, {n, n});
  Plan plan(matmul(attributes(), square, square, Desc(), square));
  plan.input(DNNL_ARG_SRC, square);
  plan.input(DNNL_ARG_WEIGHTS, square);
  plan.output(DNNL_ARG_DST, square);
  return plan;
}

TEST(PlanCache, MakesEachPlanOnceAndEvictsTheLeastRecentlyUsed) {
  PlanCache cache(3);
  int made = 0;
  const auto ask = [&](int64_t n) {
    return cache.find_or_make(key_of(n), [&] {
      ++made;
      return square_product(n);
    });
  };
  const auto first = ask(1);
  EXPECT_EQ(ask(1), first);
  EXPECT_EQ(made, 1);
  ask(2);
  ask(3);
  ask(1);  // now 2 is the oldest
  ask(4);
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_EQ(made, 4);
  EXPECT_EQ(ask(1), first);
  EXPECT_EQ(made, 4);
  ask(2);
  EXPECT_EQ(made, 5);
}

TEST(PlanCache, CachesDeclinedCalls) {
  PlanCache cache(3);
  int asked = 0;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cache.find_or_make(key_of(1),
                                 [&]() -> Plan {
                                   ++asked;
                                   throw sdk::Declined{};
                                 }),
              nullptr);
  }
  EXPECT_EQ(asked, 1);
}

TEST(PlanCache, KeysDifferByAnyWordAndByLength) {
  Key longer = key_of(1);
  longer.number(int64_t{0});
  EXPECT_FALSE(key_of(1) == longer);
  EXPECT_FALSE(key_of(1) == key_of(2));
  EXPECT_TRUE(key_of(1) == key_of(1));
  EXPECT_NE(key_of(1).hash(), key_of(2).hash());
}

TEST(PlanCache, ThreadsShareIt) {
  PlanCache cache(4);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        const int64_t n = 1 + (i + t) % 6;
        if (cache.find_or_make(key_of(n), [&] { return square_product(n); }) == nullptr) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(cache.size(), 4u);
}

// ---- weights ----------------------------------------------------------------------------------

// A weight whose packed layout has another order of elements.
struct Weight {
  std::vector<float> values = std::vector<float>(16 * 16, 1.0f);
  mt_storage storage{1, 0, 0, 0};
  Desc given = describe_contiguous(sdk::dtype_of<float>, {16, 16});
  Desc wanted = describe(sdk::dtype_of<float>, {16, 16}, {1, 16});
  int packed = 0;

  dnnl::memory ask(PackedWeights& cache) {
    return cache.find_or_pack(storage, values.data(), given, wanted, [&](const dnnl::memory& to) {
      ++packed;
      std::memcpy(to.get_data_handle(), values.data(), values.size() * sizeof(float));
    });
  }
  static bool kept(const dnnl::memory& memory) { return memory.get(true) != nullptr; }
  static float first(const dnnl::memory& memory) {
    return *static_cast<const float*>(memory.get_data_handle());
  }
};
constexpr size_t kBytes = 16 * 16 * sizeof(float);

TEST(PackedWeights, CachesFromTheSecondRequestOfAVersion) {
  PackedWeights cache(8 * kBytes, 8);
  Weight w;
  EXPECT_FALSE(Weight::kept(w.ask(cache)));
  EXPECT_EQ(cache.bytes(), 0u);
  EXPECT_TRUE(Weight::kept(w.ask(cache)));
  EXPECT_TRUE(Weight::kept(w.ask(cache)));
  EXPECT_EQ(w.packed, 1);
  EXPECT_EQ(cache.bytes(), kBytes);
}

TEST(PackedWeights, AWriteInvalidatesTheCopy) {
  PackedWeights cache(8 * kBytes, 8);
  Weight w;
  w.ask(cache);
  w.ask(cache);
  w.values[0] = 5;
  ++w.storage.version;
  EXPECT_FALSE(Weight::kept(w.ask(cache)));
  EXPECT_EQ(cache.bytes(), 0u);
  EXPECT_EQ(Weight::first(w.ask(cache)), 5);
}

TEST(PackedWeights, CachesNoEscapedStoragesAndNoWeightsWrittenEachTime) {
  PackedWeights cache(8 * kBytes, 8);
  Weight escaped, trained;
  escaped.storage.flags = MT_STORAGE_ESCAPED;
  trained.storage.id = 2;
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(Weight::kept(escaped.ask(cache)));
    EXPECT_FALSE(Weight::kept(trained.ask(cache)));
    ++trained.storage.version;
  }
  EXPECT_EQ(cache.bytes(), 0u);
}

TEST(PackedWeights, DistinguishesStoragesAddressesAndLayouts) {
  PackedWeights cache(8 * kBytes, 8);
  Weight w;
  w.ask(cache);
  w.ask(cache);
  Weight other = w;  // another place in memory
  EXPECT_FALSE(Weight::kept(other.ask(cache)));
  w.storage.id = 9;  // another tensor at the address of the first one
  EXPECT_FALSE(Weight::kept(w.ask(cache)));
  w.storage.id = 1;
  w.given = describe(sdk::dtype_of<float>, {16, 16}, {16, 1});
  EXPECT_TRUE(Weight::kept(w.ask(cache)));
  w.given = describe(sdk::dtype_of<float>, {16, 16}, {2, 32});
  EXPECT_FALSE(Weight::kept(w.ask(cache)));
}

TEST(PackedWeights, IsBoundedInBytesAndEntries) {
  PackedWeights cache(2 * kBytes, 5);
  std::vector<Weight> weights(9);
  for (size_t i = 0; i < weights.size(); ++i) weights[i].storage.id = i + 1;
  for (Weight& w : weights) w.ask(cache);
  EXPECT_EQ(cache.entries(), 5u);
  dnnl::memory held;
  for (Weight& w : weights) {
    w.ask(cache);
    held = w.ask(cache);
    EXPECT_LE(cache.bytes(), 2 * kBytes);
    EXPECT_LE(cache.entries(), 5u);
  }
  for (size_t i = 0; i + 1 < weights.size(); ++i) weights[i].ask(cache), weights[i].ask(cache);
  EXPECT_EQ(Weight::first(held), 1);  // removed from the cache, but still valid for its user
}

TEST(PackedWeights, ThreadsShareIt) {
  PackedWeights cache(3 * kBytes, 6);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Weight> own(3);
      for (uint64_t i = 0; i < own.size(); ++i) own[i].storage.id = 10 * t + i + 1;
      for (int round = 0; round < 300; ++round) {
        Weight& w = own[static_cast<size_t>(round % 3)];
        if (round % 7 == 0) {
          w.values[0] = static_cast<float>(round);
          ++w.storage.version;
        }
        const dnnl::memory memory = w.ask(cache);
        if (Weight::kept(memory) && Weight::first(memory) != w.values[0]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(cache.bytes(), 3 * kBytes);
}

}  // namespace
}  // namespace mytorch::onednn
