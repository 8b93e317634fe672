// gather, index_select, scatter, scatter_add, cat, nonzero.
#pragma once

#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_gather(Candidates& candidates);   // gather, index_select
void register_scatter(Candidates& candidates);  // scatter, scatter_add
void register_cat(Candidates& candidates);      // cat, nonzero

}  // namespace mytorch::cpu
