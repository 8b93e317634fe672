// Where the intermediates of a plan lie.
#pragma once

#include "graph/steps/plan_parts.h"

namespace mytorch::graph {

// Gives the intermediates of each device places in one block, and those that are kept memory of
// their own. The steps and nodes are as they will run.
void plan_arena(PlanParts* parts);

}  // namespace mytorch::graph
