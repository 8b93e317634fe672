// mt_ctx::parallel_for, as called by kernels.
#include "core/runtime/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/runtime/device_registry.h"
#include "mytorch/backend/parallel.h"
#include "mytorch/thread_state.h"
#include "mytorch/threads.h"
#include "tests/core/cpu_context.h"

namespace mytorch {
namespace {

class ParallelTest : public ::testing::Test {
 protected:
  ParallelTest() { set_num_threads(4); }
  ~ParallelTest() override { set_num_threads(saved_); }
  const int saved_ = num_threads();
};

using Pieces = std::vector<std::pair<int64_t, int64_t>>;

Pieces pieces_of(int64_t begin, int64_t end, int64_t grain) {
  std::mutex mutex;
  Pieces found;
  sdk::parallel_for(*cpu(), begin, end, grain, [&](int64_t b, int64_t e) {
    std::lock_guard<std::mutex> lock(mutex);
    found.emplace_back(b, e);
  });
  std::sort(found.begin(), found.end());
  return found;
}

TEST_F(ParallelTest, CoversTheRangeInPiecesOfAtLeastTheGrain) {
  for (int64_t n : {1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 1000}) {
    for (int64_t grain : {0, 1, 2, 3, 16, 999, 1000, 1001}) {
      const Pieces pieces = pieces_of(-5, n - 5, grain);
      ASSERT_LE(pieces.size(), 4u);
      int64_t at = -5;
      for (const auto& [b, e] : pieces) {
        ASSERT_EQ(b, at) << n << " by " << grain;
        ASSERT_TRUE(e - b >= grain || pieces.size() == 1) << n << " by " << grain;
        at = e;
      }
      ASSERT_EQ(at, n - 5);
    }
  }
  EXPECT_EQ(pieces_of(0, 1000, 1).size(), 4u);
  EXPECT_EQ(pieces_of(0, 1000, 400).size(), 2u);
}

TEST_F(ParallelTest, EmptyRangeCallsNothing) {
  EXPECT_TRUE(pieces_of(3, 3, 1).empty());
  EXPECT_TRUE(pieces_of(3, -3, 1).empty());
}

TEST_F(ParallelTest, UsesAsManyThreadsAsAreAllowed) {
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    EXPECT_EQ(cpu()->num_threads, threads);
    EXPECT_EQ(pieces_of(0, 1000, 1).size(), static_cast<size_t>(threads));
  }
}

// A nested call runs serially, as one range.
TEST_F(ParallelTest, NestedCallsRunInPlace) {
  std::atomic<int64_t> sum{0};
  std::atomic<int> inner_pieces{0};
  sdk::parallel_for(*cpu(), 0, 8, 1, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) {
      const std::thread::id here = std::this_thread::get_id();
      sdk::parallel_for(*cpu(), 0, 100, 1, [&](int64_t b2, int64_t e2) {
        EXPECT_EQ(std::this_thread::get_id(), here);
        ++inner_pieces;
        sum += (e2 - b2) * (i + 1);
      });
    }
  });
  EXPECT_EQ(sum.load(), 3600);
  EXPECT_EQ(inner_pieces.load(), 8);
}

TEST_F(ParallelTest, ASinglePieceMayNestToo) {
  std::atomic<int64_t> sum{0};
  sdk::parallel_for(*cpu(), 0, 1, 1, [&](int64_t, int64_t) {
    sdk::parallel_for(*cpu(), 0, 100, 1, [&](int64_t b, int64_t e) { sum += e - b; });
  });
  EXPECT_EQ(sum.load(), 100);
  EXPECT_EQ(pieces_of(0, 100, 1).size(), 4u);  // the next call is parallel again
}

TEST_F(ParallelTest, ExceptionsReachTheCaller) {
  for (int64_t thrower : {0, 499, 999}) {
    std::atomic<int64_t> done{0};
    try {
      sdk::parallel_for(*cpu(), 0, 1000, 1, [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) {
          if (i == thrower) throw std::runtime_error("element " + std::to_string(i));
          ++done;
        }
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "element " + std::to_string(thrower));
    }
    EXPECT_GE(done.load(), 750);  // the other ranges ran to completion
  }
  // The same from a nested call; the pool remains usable.
  EXPECT_THROW(sdk::parallel_for(*cpu(), 0, 4, 1,
                                 [&](int64_t, int64_t) {
                                   sdk::parallel_for(*cpu(), 0, 10, 1, [](int64_t, int64_t) {
                                     throw std::bad_alloc();
                                   });
                                 }),
               std::bad_alloc);
  EXPECT_EQ(pieces_of(0, 1000, 1).size(), 4u);
}

TEST_F(ParallelTest, ThreadsMayCallAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int64_t> sum{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      set_num_threads(3);
      for (int round = 0; round < 50; ++round) {
        sdk::parallel_for(*cpu(), 0, 300, 10, [&](int64_t b, int64_t e) { sum += e - b; });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum.load(), 4 * 50 * 300);
}

}  // namespace
}  // namespace mytorch
