// convolution and its two gradients.
#pragma once

#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_convolution(Candidates& candidates);

}  // namespace mytorch::cpu
