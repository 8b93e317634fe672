// arange.
#pragma once

#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_creation(Candidates& candidates);

}  // namespace mytorch::cpu
