// Checks of the values of tensors.
#pragma once

#include "core/tensor/batched.h"
#include "core/tensor/capture_layer.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Returns whether a check may read the values of a tensor: there are some, no device has to be
// waited for, and neither a graph nor vmap would be refused the read.
inline bool may_check_values(const Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.numel() != 0 && !recording_graph() &&
         !is_batched(tensor.impl());
}

}  // namespace mytorch
