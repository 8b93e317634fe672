// Fusion of kernel calls: pointwise calls over one shape, and reductions of its rows, become one
// call, whose intermediate values need no memory.
#pragma once

#include "graph/steps/plan_parts.h"

namespace mytorch::graph {

// Replaces steps by fused ones. Must run when the memories' kinds are known and before the arena is
// planned.
void fuse_calls(PlanParts* parts);

}  // namespace mytorch::graph
