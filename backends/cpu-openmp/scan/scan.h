// cumsum.
#pragma once

#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_scan(Candidates& candidates);

}  // namespace mytorch::cpu
