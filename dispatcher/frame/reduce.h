// Dimensions, types and outputs of reductions.
#pragma once

#include "core/types/dims.h"
#include "dispatcher/frame/pointwise.h"
#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"

namespace mytorch {

// The reduced dimensions of a call; absent means all.
struct ReduceDims {
  OptionalIntList dims;
  bool keepdim = false;
};

// Checks the dimensions, sets header->compute, and makes the outputs. Reads header->variant.
// `dtype` overrides the compute type and the result type.
void reduce_outputs(const OpInfo& op, const Tensor& self, const ReduceDims& dims,
                    std::optional<ScalarType> dtype, mt_args_header* header, TensorImpl** outputs);

// The shape and types of the results.
struct ReduceSpec {
  Dims sizes;
  ScalarType compute;
  ScalarType result;

  ScalarType type_of(const OutputInfo& output) const {
    return output.dtype >= 0             ? static_cast<ScalarType>(output.dtype)
           : output.dtype == kRealResult ? to_real(result)
                                         : result;
  }
};
ReduceSpec reduce_spec(const OpInfo& op, uint16_t variant, const Tensor& self,
                       const ReduceDims& dims, std::optional<ScalarType> dtype);

}  // namespace mytorch
