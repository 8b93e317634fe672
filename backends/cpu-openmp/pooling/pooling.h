// max_pool2d_with_indices, avg_pool2d and their gradients.
#pragma once

#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_pooling(Candidates& candidates);

}  // namespace mytorch::cpu
