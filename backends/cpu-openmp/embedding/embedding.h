// embedding and embedding_dense_backward.
#pragma once

#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_embedding(Candidates& candidates);

}  // namespace mytorch::cpu
