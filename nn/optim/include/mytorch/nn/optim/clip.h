// Gradient clipping, for use between backward() and step().
#pragma once

#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::optim {

// Scales all gradients of the parameters by a common factor, so that their norm of order
// `norm_type` (inf: the largest magnitude), taken as one vector, is at most `max_norm`. Returns the
// 0-dim norm before scaling, on the first gradient's device. With `error_if_nonfinite`, waits for
// the norm and throws Error(kValue), leaving the gradients unchanged, if it is NaN or infinite.
Tensor clip_grad_norm_(TensorList parameters, double max_norm, double norm_type = 2,
                       bool error_if_nonfinite = false);

// Clamps each element of the gradients to [-max_value, max_value].
void clip_grad_value_(TensorList parameters, double max_value);

}  // namespace mytorch::nn::optim
