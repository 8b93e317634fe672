// Runs inner loops over operands of any layout, dtype and size.
#pragma once

#include "backends/cpu-openmp/pointwise/programs.h"
#include "mytorch/abi.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cpu {

// A call of a program. Unwanted outputs, and inputs that no wanted output needs, are NULL. `base`
// is the operator's name in errors.
struct PointwiseCall {
  PointwiseCall(const PointwiseProgram& program_, const char* base_, mt_dtype compute_,
                const void* args_)
      : program(program_), base(base_), compute(compute_), args(args_) {}  // NOLINT: see below

  const PointwiseProgram& program;
  const char* base;
  mt_dtype compute;
  const void* args;
  // Set up to the program's number of operands; clearing the whole array would slow small calls.
  const mt_tensor* inputs[kMaxInputs];
  const mt_tensor* outputs[kMaxOutputs];

  // Sets the operands to those of the argument struct.
  void set_operands() {
    for (int32_t i = 0; i < program.num_inputs; ++i) {
      inputs[i] = sdk::tensor_at(args, program.inputs[i].offset);
    }
    for (int32_t i = 0; i < program.num_outputs; ++i) {
      outputs[i] = sdk::tensor_at(args, program.outputs[i].offset);
    }
  }
};
int run_call(mt_ctx* ctx, const PointwiseCall& call);

// The kernel of the generated operators; `self` is a PointwiseOp.
int run_pointwise(void* self, mt_ctx* ctx, const void* args) noexcept;

}  // namespace mytorch::cpu
