// Joins steps over tiles whose values machine code keeps in registers.
#pragma once

#include <span>
#include <vector>

#include "backends/cpu-openmp/fused/code.h"

namespace mytorch::cpu {

// Replaces neighboring steps of float32 by loops of machine code, where this processor has them
// (machine_code.h). `kept` says for each tile whether others than these steps read it. Does nothing
// if the results must be `exact`, those of the records' own loops, which the compiler rounds as it
// likes. Returns what the steps that are left cost per element, in additions.
int64_t join_steps(std::vector<Step>& steps, std::span<const Constant> constants,
                   const std::vector<bool>& kept, bool exact);

}  // namespace mytorch::cpu
