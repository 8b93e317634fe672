// The leaves that tensors depend on.
#pragma once

#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::autograd {

// Returns the leaves to which a backward of the outputs would add gradients, without those that
// they depend on through the tensors `ends` alone, and without these.
std::vector<Tensor> leaves_of(TensorList outputs, TensorList ends);

}  // namespace mytorch::autograd
