// Times two ways to do the same, in turns, so that what the machine does meanwhile meets both.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "mytorch/mytorch.h"

namespace bench {

using Call = std::function<void()>;

inline mytorch::Device device("cpu");  // where the tensors of all cases are

// The seconds of a call, of `calls` in a row.
inline double seconds(const Call& call, int calls) {
  mytorch::synchronize(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  mytorch::synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
}

inline double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

inline double copy_seconds = 0;  // for each byte that a copy reads or writes

// Prints the name and the medians in microseconds. With the bytes that the function must read and
// write, the rate of the compiled one as a part of that of a copy follows.
inline void compare(const std::string& name, const Call& eager, const Call& compiled,
                    int64_t bytes = 0) {
  for (int i = 0; i < 5; ++i) {
    eager();
    compiled();
  }
  constexpr double kRound = 0.02;
  const int calls = std::max(1, static_cast<int>(kRound / seconds(compiled, 3)));
  std::vector<double> plain, replayed;
  for (int round = 0; round < 15; ++round) {
    plain.push_back(seconds(eager, calls));
    replayed.push_back(seconds(compiled, calls));
  }
  std::printf("%s %.3f %.3f", name.c_str(), 1e6 * median(plain), 1e6 * median(replayed));
  if (bytes > 0) {
    std::printf(" %.2f", static_cast<double>(bytes) * copy_seconds / median(replayed));
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace bench
