// The host's cost of queueing work for a device. Independent of a framework: peers measure in the
// same way.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <vector>

namespace bench {

struct HostCase {
  const char* name;
  std::function<void()> run;
  std::function<void()> wait;  // waits for the work that run() queued
};

// Prints the nanoseconds per call of each case: the median of 400 batches of 100 calls, each of
// which starts on an idle device. Cases alternate, so that a slow phase of the machine affects all
// of them.
inline void print_host_costs(const std::vector<HostCase>& cases) {
  using Clock = std::chrono::steady_clock;
  constexpr int kBatches = 400, kCalls = 100;
  std::vector<std::vector<double>> times(cases.size());
  for (int batch = 0; batch < kBatches; ++batch) {
    for (size_t i = 0; i < cases.size(); ++i) {
      cases[i].run();
      cases[i].wait();
      const auto start = Clock::now();
      for (int k = 0; k < kCalls; ++k) cases[i].run();
      const std::chrono::duration<double, std::nano> passed = Clock::now() - start;
      times[i].push_back(passed.count() / kCalls);
      cases[i].wait();
    }
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    std::printf("host: %-22s %10.1f ns\n", cases[i].name, times[i][kBatches / 2]);
  }
  std::fflush(stdout);
}

}  // namespace bench
