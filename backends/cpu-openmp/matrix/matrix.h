// bmm, mm, addmm, baddbmm and linear: operands' strides go straight to gemm(), which needs no
// copies.
#pragma once

#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_matrix(Candidates& candidates);

}  // namespace mytorch::cpu
