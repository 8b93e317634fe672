// What happens before a reduction's kernel: dims, types, outputs.
#pragma once

#include "core/types/dims.h"
#include "dispatcher/frame/pointwise.h"
#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"

namespace mytorch {

// The dims argument of a call, in one form: absent means all.
struct ReduceDims {
  OptionalIntList dims;
  bool keepdim = false;
};

// Sets header->compute, checks the dims, and makes the outputs. `dtype`, where given, is the type
// to compute and return in.
void reduce_outputs(const OpInfo& op, const Tensor& self, const ReduceDims& dims,
                    std::optional<ScalarType> dtype, mt_args_header* header, TensorImpl** outputs);

// The shape and types of the results, for out= forms.
struct ReduceSpec {
  Dims sizes;
  ScalarType compute;
  ScalarType result;

  ScalarType type_of(const OutputInfo& output) const {
    return output.dtype >= 0 ? static_cast<ScalarType>(output.dtype) : result;
  }
};
ReduceSpec reduce_spec(const OpInfo& op, const Tensor& self, const ReduceDims& dims,
                       std::optional<ScalarType> dtype);

}  // namespace mytorch
