// softmax, log_softmax, layer and batch normalization, nll_loss, with their gradients.
#pragma once

#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_softmax(Candidates& candidates);
void register_layer_norm(Candidates& candidates);
void register_batch_norm(Candidates& candidates);
void register_nll_loss(Candidates& candidates);

}  // namespace mytorch::cpu
