// sort and topk.
#pragma once

#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_sorting(Candidates& candidates);

}  // namespace mytorch::cpu
