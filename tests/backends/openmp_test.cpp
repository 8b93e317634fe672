// The parallel regions of libraries on the host's threads (mytorch/backend/openmp.h), without a
// library: the functions are called as code compiled for OpenMP calls them.
#include "mytorch/backend/openmp.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace mytorch::sdk {
namespace {

// A host with up to `most` threads.
struct Host : mt_ctx {
  int64_t most;

  explicit Host(int32_t threads, int64_t limit = 100) : mt_ctx{}, most(limit) {
    size = sizeof(mt_ctx);
    num_threads = threads;
    parallel_for = [](mt_ctx* ctx, int64_t, int64_t n, int64_t grain, mt_range_fn body,
                      void* user) {
      const int64_t limit = static_cast<Host*>(ctx)->most;
      if (grain == MT_ASK_TOGETHER) return body(user, 0, std::min(n, limit));
      if (n > limit) return body(user, 0, n);
      std::vector<std::jthread> threads;
      for (int64_t i = 1; i < n; ++i) threads.emplace_back([=] { body(user, i, i + 1); });
      body(user, 0, 1);
    };
  }
};

template <class F>
void region(unsigned threads, F f) {
  openmp::parallel([](void* data) { (*static_cast<F*>(data))(); }, &f, threads);
}

TEST(OpenMp, ARegionHasTheThreadsOfItsScope) {
  Host host(4);
  const openmp::Scope scope(host, openmp::threads_of(host, true), true);
  for (const unsigned threads : {0u, 1u, 2u, 3u, 4u}) {
    std::atomic<unsigned> numbers = 0, calls = 0;
    const int expected = threads == 0 ? 4 : static_cast<int>(threads);
    region(threads, [&] {
      numbers |= 1u << openmp::thread.number;
      ++calls;
      EXPECT_EQ(openmp::thread.team, expected);
      EXPECT_EQ(openmp::thread.threads, 4);
    });
    EXPECT_EQ(calls.load(), static_cast<unsigned>(expected));
    EXPECT_EQ(numbers.load(), (1u << expected) - 1);
    EXPECT_EQ(openmp::thread.team, 1);
    EXPECT_EQ(openmp::thread.number, 0);
  }
}

TEST(OpenMp, BarriersWaitForAll) {
  Host host(4);
  const openmp::Scope scope(host, 4, true);
  std::atomic<int> arrived = 0;
  region(0, [&] {
    for (int round = 1; round <= 100; ++round) {
      ++arrived;
      openmp::thread.barrier->wait();
      EXPECT_EQ(arrived.load(), 4 * round);
      openmp::thread.barrier->wait();
    }
  });
}

TEST(OpenMp, NestedRegionsHaveOneThread) {
  Host host(3);
  const openmp::Scope scope(host, 3, true);
  std::atomic<int> inner = 0;
  region(0, [&] {
    const int number = openmp::thread.number;
    region(2, [&] {
      ++inner;
      EXPECT_EQ(openmp::thread.team, 1);
      EXPECT_EQ(openmp::thread.number, 0);
    });
    EXPECT_EQ(openmp::thread.number, number);
    EXPECT_EQ(openmp::thread.team, 3);
  });
  EXPECT_EQ(inner.load(), 3);
}

// OpenBLAS sets the number of threads when it is loaded. A region that it believes to have more
// threads than it has would wait forever.
TEST(OpenMp, WithoutAScopeThereIsOneThread) {
  int calls = 0;
  region(4, [&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(OpenMp, ScopesNest) {
  Host host(4);
  {
    const openmp::Scope outer(host, 4, true);
    {
      const openmp::Scope inner(host, 1, true);
      int calls = 0;
      region(0, [&] { ++calls; });
      EXPECT_EQ(calls, 1);
    }
    EXPECT_EQ(openmp::thread.threads, 4);
  }
  EXPECT_EQ(openmp::thread.ctx, nullptr);
  EXPECT_EQ(openmp::thread.threads, 1);
}

TEST(OpenMp, NoMoreThreadsThanTheHostHas) {
  Host host(4, 2);
  EXPECT_EQ(openmp::threads_of(host, true), 2);
  Host alone(4, 1);
  EXPECT_EQ(openmp::threads_of(alone, true), 1);
  Host one(1);
  EXPECT_EQ(openmp::threads_of(one, true), 1);
}

TEST(OpenMp, ArrivesTellsWhetherALibraryAsked) {
  EXPECT_FALSE(openmp::arrives([] {}));
  EXPECT_TRUE(openmp::arrives([] { ++openmp::thread.calls; }));
}

}  // namespace
}  // namespace mytorch::sdk
