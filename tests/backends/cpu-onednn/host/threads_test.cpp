// oneDNN's parallel regions run on the threads of mytorch.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/runtime/workers.h"
#include "mytorch/backends.h"
#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

class OnednnThreads : public ::testing::Test {
 protected:
  OnednnThreads() { set_num_threads(3); }
  ~OnednnThreads() override { set_num_threads(saved_); }
  const int saved_ = num_threads();
  const Prefer pin_{"cpu", "cpu-onednn"};
  const Tensor x_ = randn({8, 32, 30, 30}), w_ = randn({48, 32, 3, 3});
};

Tensor convolve(const Tensor& x, const Tensor& w) { return conv2d(x, w, {}, {1, 1}, {1, 1}); }

// The threads of the process, by the kernel's numbers.
std::set<std::string> threads_of_process() {
  std::set<std::string> all;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
    all.insert(each.path().filename().string());
  }
  return all;
}

TEST_F(OnednnThreads, AreThoseOfTheHost) {
  relu(x_);  // loads the backends: the driver of a GPU has threads
  workers::ensure(num_threads());
  const std::set<std::string> threads = threads_of_process();
  const uint64_t before = workers::stats().begun;
  convolve(x_, w_);
  EXPECT_GE(workers::stats().begun, before + 2);  // the pieces of one region
  EXPECT_EQ(threads_of_process(), threads);
}

TEST_F(OnednnThreads, OneThreadUsesNoWorker) {
  set_num_threads(1);
  convolve(x_, w_);
  const uint64_t before = workers::stats().begun;
  convolve(x_, w_);
  EXPECT_EQ(workers::stats().begun, before);
}

TEST_F(OnednnThreads, ManyCallersAndABusyMachine) {
  const Tensor expected = convolve(x_, w_);
  workers::pretend_busy(60'000);
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      set_num_threads(3);
      const Prefer pin("cpu", "cpu-onednn");
      for (int i = 0; i < 20; ++i) {
        // Loops of the host's own kernels between oneDNN's.
        const Tensor y = t % 2 == 0 ? convolve(x_, w_) : relu(convolve(x_, w_) + 0);
        EXPECT_TRUE(equal(y, t % 2 == 0 ? expected : relu(expected)));
      }
    });
  }
  for (std::thread& each : callers) each.join();
  workers::pretend_busy(0);
}

}  // namespace
}  // namespace mytorch
