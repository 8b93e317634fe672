// Observers of kernel calls, of several threads at a time.
#include "dispatcher/choice/observe.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include "mytorch/ops/add.h"
#include "mytorch/ops/ones.h"

namespace mytorch {
namespace {

// The first of several observers has all kernels resolved anew; the others begin while it does.
TEST(Observe, SeesTheCallsOfItsThreadFromTheBeginning) {
  constexpr int kThreads = 4, kRounds = 200;
  const Tensor x = ones({8});
  std::barrier together(kThreads);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        together.arrive_and_wait();
        int seen = 0;
        {
          const Observe observe([&](const KernelCall& call) {
            seen += std::string(call.entry->info->base) == "add" ? 1 : 0;
          });
          add(x, x);
        }
        if (seen != 1) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0) << "of " << kThreads * kRounds;
}

}  // namespace
}  // namespace mytorch
