// gather, index_select, scatter, scatter_add, cat, nonzero.
#pragma once

#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_gather(KernelEntries& kernels);   // gather, index_select
void register_scatter(KernelEntries& kernels);  // scatter, scatter_add
void register_cat(KernelEntries& kernels);      // cat, nonzero

}  // namespace mytorch::cpu
