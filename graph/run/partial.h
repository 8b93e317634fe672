// What a run that failed in the middle has changed.
#pragma once

#include <cstddef>
#include <string>

#include "graph/steps/plan_parts.h"

namespace mytorch::graph {

// Returns what to add to the error of the step `step`, before which the interpreter had run the
// first `nodes` of the plan's nodes: the arguments, tensors from outside and grads that these have
// written. Returns "" if they have written none, so that the call has changed nothing.
std::string partial_text(const PlanParts& parts, size_t step, size_t nodes);

// The same for the first run of a plan, in which the first `nodes` nodes of the graph have run.
std::string partial_first_text(const Graph& graph, size_t nodes);

// The same for a device graph, which runs all steps by one launch, and so may have written what any
// of them writes.
std::string partial_launch_text(const PlanParts& parts);

}  // namespace mytorch::graph
