// Functions on the parameters of a model, under libtorch's names.
#pragma once

#include <vector>

#include "mytorch/list.h"
#include "mytorch/nn/optim/clip.h"
#include "mytorch/ops/clip_grads_with_norm_.h"
#include "mytorch/ops/get_total_norm.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::utils {

using mytorch::clip_grads_with_norm_;
using mytorch::get_total_norm;
using nn::optim::clip_grad_norm_;
using nn::optim::clip_grad_value_;

// Concatenates the elements of all parameters. Throws Error(kDevice) if the devices differ.
Tensor parameters_to_vector(TensorList parameters);
// Copies consecutive elements of `vector` into the parameters, without recording. Throws
// Error(kShape) unless it has as many elements as they have in total.
void vector_to_parameters(const Tensor& vector, TensorList parameters);

}  // namespace mytorch::nn::utils
