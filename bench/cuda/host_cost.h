// What queueing work for a device costs the host. Of no framework: peers measure the same way.
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
  std::function<void()> wait;  // for what run() has queued
};

// Prints the nanoseconds of a call of each while the device keeps up: of 400 batches of 100 calls,
// each of which finds the device idle, the median. The cases take turns, so that a slower phase of
// the machine is one for all.
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
