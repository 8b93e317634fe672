// Steps that need not run in every call: what they compute follows from tensors from outside alone,
// such as weights that are packed, cast or folded, or from nothing at all. Their results are kept,
// and computed again when one of these tensors has been written or replaced.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/steps/plan_parts.h"

namespace mytorch::graph {

// Marks the steps whose results can be kept (Step::kept). Called before steps are fused: a step
// that becomes one with steps of each call costs no memory access of its own, and is not kept.
void mark_kept_steps(PlanParts* parts);

// Moves the steps that are still marked, in order, to the front, and their results to memory that
// stays (Memory::kKept). Called after steps are fused.
void gather_kept_steps(PlanParts* parts);

// What the results that a plan keeps were computed from.
class KeptFrom {
 public:
  // Returns whether the tensors have not changed since note(). Memory to which somebody has a
  // pointer may change unseen.
  bool holds(const PlanParts& parts) const;
  void note(const PlanParts& parts);
  // The results are about to be replaced: nothing holds until the next note().
  void forget() { noted_ = false; }

 private:
  struct State {
    uint64_t id, version;  // of the storage
  };
  std::vector<State> states_;  // of parts.kept_sources
  bool noted_ = false;
};

}  // namespace mytorch::graph
