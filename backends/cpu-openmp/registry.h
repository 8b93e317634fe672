// Where kernel files hand in their candidates. A file of kernels defines one function, declared here
// and listed in backend.cpp; it appends what it has.
#pragma once

#include <vector>

#include "mytorch/abi.h"

namespace mytorch::cpu {

using Candidates = std::vector<mt_candidate>;

void register_pointwise(Candidates& candidates);
void register_reduce(Candidates& candidates);
void register_copy(Candidates& candidates);
void register_fill(Candidates& candidates);

}  // namespace mytorch::cpu
