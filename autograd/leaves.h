// The leaves that tensors depend on.
#pragma once

#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::autograd {

// Returns the leaves to which a backward of the outputs would add gradients, without those that
// they depend on through the tensors `ends` alone, and without these.
std::vector<Tensor> leaves_of(TensorList outputs, TensorList ends);

// Returns the gradients with respect to the inputs, which are all different, as if these had no
// history and no hooks: those of what was computed from them. Undefined for inputs that no output
// depends on. Keeps the graph.
std::vector<Tensor> partial_gradients(TensorList outputs, TensorList inputs,
                                      TensorList grad_outputs);

}  // namespace mytorch::autograd
