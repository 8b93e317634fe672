// Selection of the fastest of several algorithms by running them.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {

// Times `count` algorithms and returns the index of the fastest. run(i) queues algorithm i and
// returns whether it can run; if none can, the result is 0. A later algorithm must win by more than
// the timing noise, so that repeated searches agree.
template <class Run>
size_t fastest(const mt_ctx& ctx, size_t count, Run&& run) {
  constexpr int kRounds = 3, kRepeats = 5;
  constexpr float kBetter = 0.98F;
  struct Event {
    cudaEvent_t it = nullptr;
    Event() { CUDA(cudaEventCreate(&it)); }
    ~Event() { cudaEventDestroy(it); }
    Event(const Event&) = delete;
  } begin, end;
  std::vector<float> times(count, std::numeric_limits<float>::infinity());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < count; ++i) {
      if (!run(i)) continue;  // also loads the code
      CUDA(cudaEventRecord(begin.it, stream_of(ctx)));
      for (int k = 0; k < kRepeats; ++k) run(i);
      CUDA(cudaEventRecord(end.it, stream_of(ctx)));
      CUDA(cudaEventSynchronize(end.it));
      float time = 0;
      CUDA(cudaEventElapsedTime(&time, begin.it, end.it));
      times[i] = std::min(times[i], time);
    }
  }
  size_t best = 0;
  for (size_t i = 1; i < count; ++i) {
    if (times[i] < kBetter * times[best]) best = i;
  }
  return best;
}

}  // namespace mytorch::cuda
