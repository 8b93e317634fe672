// Running a program as the operators that its nodes are: where no kernel takes a call, and where
// the computation of a derived gradient is itself recorded.
#pragma once

#include <vector>

#include "dispatcher/frame/pointwise.h"
#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"

namespace mytorch {

// The computation type of a pointwise call.
mt_dtype pointwise_compute(const OpInfo& op, PointwiseInputs inputs);

// The outputs of the program that header(args).variant names, undefined where `wanted` does not
// want one. The operators go through the layers.
std::vector<Tensor> decompose(const OpInfo& op, const void* args, const bool* wanted = nullptr);

}  // namespace mytorch
