// Steps of a plan that may run beside others, on several streams of a device.
//
// A step waits for the earlier ones whose results it reads, or whose operands or results it
// overwrites. Memory decides: the bytes that tensors cover when the steps are captured, so steps
// that share a place of the arena are ordered, too.
#pragma once

#include <cstddef>
#include <vector>

#include "core/runtime/side_streams.h"
#include "graph/steps/plan_parts.h"

namespace mytorch::graph {

struct Branches {
  struct StepPlace {
    int stream = 0;             // 0: the thread's own
    std::vector<size_t> waits;  // for these steps, which are on other streams
    bool awaited = false;       // by a step of another stream
  };
  std::vector<StepPlace> steps;
  int streams = 1;
};

// Distributes the steps of a plan from `first` on over at most `most` streams. Its tensors must be
// where they are in the run.
Branches branches_of(const PlanParts& parts, size_t first, int most);

// A run of steps on the streams of its branches.
class BranchRun {
 public:
  BranchRun(const PlanParts& parts, const Branches& branches);
  void before(size_t step);
  void after(size_t step);
  // Has the thread's own stream wait for the others.
  void join();

 private:
  const Branches& branches_;
  SideStreams streams_;
  void* const begin_;
  std::vector<bool> begun_;   // by stream
  std::vector<void*> marks_;  // by step
};

}  // namespace mytorch::graph
