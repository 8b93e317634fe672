// The call of a case as a function of its operands that have gradients.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "conformance/inputs.h"
#include "mytorch/autograd/functional.h"

namespace mytorch::conformance {

struct DifferentiableCall {
  std::vector<Tensor> leaves;              // require gradients; float64 or complex128
  std::vector<std::string> names;          // of the leaves: "self", "tensors[1]"
  autograd::TensorFunction function = {};  // of the leaves; returns the results of these types
};

// Returns the call on these arguments. It has no leaves if no operand has gradients, or if elements
// of one share memory: finite differences change single elements. `inplace`: of the in-place form,
// which writes to copies of the first operand.
DifferentiableCall differentiable_call(const Case& c, const Arguments& arguments,
                                       bool inplace = false);

}  // namespace mytorch::conformance
