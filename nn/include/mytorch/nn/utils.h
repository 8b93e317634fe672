// Functions on the parameters of a model, under libtorch's names.
#pragma once

#include <vector>

#include "mytorch/list.h"
#include "mytorch/nn/optim/clip.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::utils {

using nn::optim::clip_grad_norm_;
using nn::optim::clip_grad_value_;

// Concatenates the elements of all parameters. Throws Error(kDevice) if the devices differ.
Tensor parameters_to_vector(TensorList parameters);
// Copies consecutive elements of `vector` into the parameters, without recording. Throws
// Error(kShape) unless it has as many elements as they have in total.
void vector_to_parameters(const Tensor& vector, TensorList parameters);

}  // namespace mytorch::nn::utils
