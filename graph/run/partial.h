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

}  // namespace mytorch::graph
