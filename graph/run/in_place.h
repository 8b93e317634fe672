// Results of a plan that take the memory of an operand that nobody reads later.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/steps/memory.h"
#include "graph/steps/plan_parts.h"

namespace mytorch::graph {

// Returns, for each memory, the one in whose place it lies: itself, or an operand's of the step
// that computes it, where the kernels take a result that is exactly one of the operands. Extends
// the lifetimes of the latter by those of the former.
std::vector<size_t> lay_in_place(const PlanParts& parts, std::vector<Lifetime>* lifetimes);

}  // namespace mytorch::graph
