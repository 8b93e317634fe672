// Where kernel files hand in their candidates. A file of kernels defines one function, declared
// here and listed in backend.cpp; it appends what it has.
#pragma once

#include <vector>

#include "mytorch/abi.h"

namespace mytorch::cpu {

using Candidates = std::vector<mt_candidate>;

void register_pointwise(Candidates& candidates);
void register_reduce(Candidates& candidates);
void register_copy(Candidates& candidates);
void register_fill(Candidates& candidates);
void register_embedding(Candidates& candidates);
void register_nll_loss(Candidates& candidates);
void register_batch_norm(Candidates& candidates);
void register_layer_norm(Candidates& candidates);
void register_softmax(Candidates& candidates);
void register_creation(Candidates& candidates);
void register_random(Candidates& candidates);
void register_scan(Candidates& candidates);
void register_sorting(Candidates& candidates);
void register_cat(Candidates& candidates);
void register_scatter(Candidates& candidates);
void register_gather(Candidates& candidates);
void register_pooling(Candidates& candidates);
void register_convolution(Candidates& candidates);
void register_matrix(Candidates& candidates);

}  // namespace mytorch::cpu
