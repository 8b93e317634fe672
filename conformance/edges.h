// Gradient checks that follow from a sample: the call in double precision, and with operands that
// have no dimensions, no elements, only sizes of 1, or sizes that are broadcast. Nothing in a
// record says which shapes an operator accepts, so each is tried.
#pragma once

#include <vector>

#include "conformance/inputs.h"

namespace mytorch::conformance {

// Returns the cases of a differentiable operator, in float64 and complex128. The operator may
// refuse any of them. A quick check tries some of each `edge` until it accepts one, and none
// without one.
std::vector<Case> edge_cases(const OpRecord& op);

}  // namespace mytorch::conformance
