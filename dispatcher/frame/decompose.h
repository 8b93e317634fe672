// Runs a program as the operators that its nodes name: when no kernel takes a call, and when
// autograd records the computation of a derived gradient.
#pragma once

#include <vector>

#include "dispatcher/frame/pointwise.h"
#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Returns the compute type of a pointwise call.
mt_dtype pointwise_compute(const OpInfo& op, PointwiseInputs inputs);

// Returns the outputs of the program header(args).variant; those that `wanted` excludes are
// undefined. The operators run through the layers.
std::vector<Tensor> decompose(const OpInfo& op, const void* args, const bool* wanted = nullptr);

}  // namespace mytorch
