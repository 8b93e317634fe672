// uniform_, normal_, random_, native_dropout.
#pragma once

#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_random(Candidates& candidates);

}  // namespace mytorch::cpu
