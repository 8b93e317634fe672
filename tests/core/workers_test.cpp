// The pool of CPU threads: who runs the pieces of a loop, and what happens if a thread gets no
// processor, the process forks, or many callers come at once.
#include "core/runtime/workers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <latch>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "core/runtime/device_registry.h"
#include "mytorch/abi_threads.h"
#include "mytorch/backend/parallel.h"
#include "mytorch/thread_state.h"
#include "mytorch/threads.h"
#include "tests/core/cpu_context.h"

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN true
#else
#define UNDER_TSAN false
#endif

namespace mytorch {
namespace {

using std::chrono::milliseconds;

template <class F>
void pieces(int64_t n, F f) {
  const workers::Piece run = [](void* user, int64_t i) { (*static_cast<F*>(user))(i); };
  workers::run_pieces(n, reinterpret_cast<uintptr_t>(run), run, &f);
}
template <class F>
void together(int64_t n, F f) {
  ASSERT_EQ(workers::ensure(n), n);
  workers::run_together(
      n, [](void* user, int64_t i) { (*static_cast<F*>(user))(i); }, &f);
}

// A pool that workers of other tests do not slow down.
class WorkersTest : public ::testing::Test {
 protected:
  ~WorkersTest() override { workers::pretend_busy(0); }
};

TEST_F(WorkersTest, RunEachPieceOnce) {
  for (const bool busy : {false, true}) {
    workers::pretend_busy(busy ? 60'000 : 0);
    for (int64_t n : {1, 2, 3, 4, 7, 16, 2, 5, 1, 40}) {
      for (int round = 0; round < 200; ++round) {
        std::vector<std::atomic<int>> runs(static_cast<size_t>(n));
        pieces(n, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
        for (const auto& each : runs) ASSERT_EQ(each.load(), 1) << n << " pieces, busy: " << busy;
      }
    }
  }
}

// The workers are in the loop of another caller, and stay there until this one has ended.
TEST_F(WorkersTest, CallerRunsPiecesThatNoWorkerBegins) {
  const int64_t n = std::max<int64_t>(workers::stats().threads, 16) + 1;
  std::latch all_busy(n), over(1);
  std::thread other([&] {
    together(n, [&](int64_t) {
      all_busy.count_down();
      over.wait();
    });
  });
  all_busy.wait();
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> runs = 0;
  for (int round = 0; round < 10; ++round) {
    pieces(4, [&](int64_t) {
      ++runs;
      const std::scoped_lock lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
  }
  EXPECT_EQ(runs.load(), 40);
  EXPECT_TRUE(threads.contains(std::this_thread::get_id()));
  over.count_down();
  other.join();
}

// A loop of microseconds is over before a sleeping worker wakes, so few wake one.
TEST_F(WorkersTest, SleepersDoNotDelayShortLoops) {
  workers::pretend_busy(60'000);
  const workers::WorkerStats before = workers::stats();
  int sum = 0;
  for (int round = 0; round < 2000; ++round) {
    std::atomic<int> done = 0;
    pieces(2, [&](int64_t) { ++done; });
    sum += done.load();
  }
  EXPECT_EQ(sum, 4000);
  const workers::WorkerStats after = workers::stats();
  EXPECT_LT(after.stolen + after.begun, before.stolen + before.begun + 1000);
}

TEST_F(WorkersTest, LongLoopsWakeSleepers) {
  workers::pretend_busy(60'000);
  std::this_thread::sleep_for(milliseconds(5));
  const uint64_t before = workers::stats().begun;
  // How many of them a worker is in time for depends on what else runs.
  for (int round = 0; round < 20; ++round) {
    pieces(2, [&](int64_t) { std::this_thread::sleep_for(milliseconds(20)); });
  }
  EXPECT_GT(workers::stats().begun, before);
}

double process_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST_F(WorkersTest, IdleWorkersSleep) {
  pieces(4, [](int64_t) {});
  const double before = process_seconds();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LT(process_seconds() - before, 0.1);
}

// Each piece waits for all others.
TEST_F(WorkersTest, RunTogether) {
  for (int64_t n : {1, 2, 5, 9, 3}) {
    for (int round = 0; round < 50; ++round) {
      std::barrier meet(n);
      std::atomic<int64_t> sum = 0;
      together(n, [&](int64_t i) {
        sum += i;
        meet.arrive_and_wait();
        EXPECT_EQ(sum.load(), n * (n - 1) / 2);
      });
    }
  }
}

TEST_F(WorkersTest, ManyCallersAtOnce) {
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int64_t t = 0; t < 5; ++t) {
    callers.emplace_back([&, t] {
      for (int64_t round = 0; round < 200; ++round) {
        const int64_t n = 2 + (t + round) % 3;
        if (t % 2 == 0) {
          pieces(n, [&](int64_t) { ++sum; });
          continue;
        }
        std::barrier meet(n);
        together(n, [&](int64_t) {
          meet.arrive_and_wait();
          ++sum;
        });
      }
    });
  }
  for (std::thread& each : callers) each.join();
  int64_t expected = 0;
  for (int64_t t = 0; t < 5; ++t) {
    for (int64_t round = 0; round < 200; ++round) expected += 2 + (t + round) % 3;
  }
  EXPECT_EQ(sum.load(), expected);
}

TEST_F(WorkersTest, EndedCallersLeaveNothingBehind) {
  for (int i = 0; i < 200; ++i) {
    std::thread([] {
      std::atomic<int> runs = 0;
      pieces(3, [&](int64_t) { ++runs; });
      EXPECT_EQ(runs.load(), 3);
    }).join();
  }
  EXPECT_LT(workers::stats().threads, 100);
}

// A child has none of its parent's threads, and creates its own.
TEST_F(WorkersTest, AChildOfForkHasThreadsOfItsOwn) {
  if (UNDER_TSAN) GTEST_SKIP() << "ThreadSanitizer creates no threads after a fork";
  for (const bool sleeping : {false, true}) {
    pieces(4, [](int64_t) {});
    if (sleeping) std::this_thread::sleep_for(milliseconds(10));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // a child that waits for the parent's threads waits forever
      int64_t sum = 0;
      for (int round = 0; round < 100; ++round) {
        std::atomic<int64_t> runs = 0;
        std::barrier meet(3);
        pieces(4, [&](int64_t) { ++runs; });
        together(3, [&](int64_t) { meet.arrive_and_wait(); });
        sum += runs.load();
      }
      _exit(sum == 400 && workers::stats().threads >= 3 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    pieces(4, [](int64_t) {});  // the parent's still work
  }
}

// ---- through the context ----------------------------------------------------------------------

// A sum whose last bits depend on how the range is divided.
float sum_of(int64_t n) {
  std::mutex mutex;
  std::vector<std::pair<int64_t, float>> parts;
  sdk::parallel_for(*cpu(), 0, n, 1, [&](int64_t b, int64_t e) {
    float sum = 0;
    for (int64_t i = b; i < e; ++i) sum += std::sin(static_cast<float>(i));
    const std::scoped_lock lock(mutex);
    parts.emplace_back(b, sum);
  });
  std::sort(parts.begin(), parts.end());
  float all = 0;
  for (const auto& [begin, part] : parts) all += part;
  return all;
}

TEST_F(WorkersTest, ResultsDependOnTheNumberOfThreadsOnly) {
  const int before = num_threads();
  set_num_threads(3);
  const float quiet = sum_of(3000);
  workers::pretend_busy(60'000);
  for (int round = 0; round < 50; ++round) ASSERT_EQ(sum_of(3000), quiet);
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([quiet] {
      set_num_threads(3);
      for (int round = 0; round < 50; ++round) EXPECT_EQ(sum_of(3000), quiet);
    });
  }
  for (std::thread& each : callers) each.join();
  set_num_threads(2);
  EXPECT_NE(sum_of(3000), quiet);
  set_num_threads(before);
}

int64_t possible(int64_t n) {
  int64_t threads = -1;
  cpu()->parallel_for(
      cpu(), 0, n, MT_ASK_TOGETHER,
      [](void* user, int64_t, int64_t end) { *static_cast<int64_t*>(user) = end; }, &threads);
  return threads;
}

TEST_F(WorkersTest, SpecialGrains) {
  EXPECT_EQ(possible(1), 1);
  EXPECT_EQ(possible(6), 6);
  std::barrier meet(6);
  cpu()->parallel_for(
      cpu(), 0, 6, MT_TOGETHER,
      [](void* user, int64_t begin, int64_t end) {
        EXPECT_EQ(end, begin + 1);
        static_cast<std::barrier<>*>(user)->arrive_and_wait();
        EXPECT_EQ(possible(6), 1);
      },
      &meet);
  // Inside of a loop there is one thread.
  std::atomic<int> calls = 0;
  cpu()->parallel_for(
      cpu(), 0, 1, 1,
      [](void* user, int64_t, int64_t) {
        EXPECT_EQ(possible(6), 1);
        cpu()->parallel_for(
            cpu(), 0, 6, MT_TOGETHER,
            [](void* count, int64_t begin, int64_t end) {
              EXPECT_EQ(begin, 0);
              EXPECT_EQ(end, 6);
              ++*static_cast<std::atomic<int>*>(count);
            },
            user);
      },
      &calls);
  EXPECT_EQ(calls.load(), 1);
}

}  // namespace
}  // namespace mytorch
