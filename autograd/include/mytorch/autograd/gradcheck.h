// Testing gradients against differences of values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::autograd {

using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

struct GradcheckOptions {
  double eps = 1e-6;   // the step of the central differences
  double atol = 1e-5;  // agreement: |analytic - numeric| <= atol + rtol * |numeric|
  double rtol = 1e-3;
  double nondet_tol = 0;  // how far two runs of the same backward may differ
  // Random weights of the outputs, each of which gives one number per element of the inputs to
  // compare; an output alone adds another when there are several.
  int projections = 2;
  uint64_t seed = 0;  // of the weights
};

struct GradcheckResult {
  bool ok = true;
  // Which input, which element, what was expected, for the worst disagreement. "" when ok.
  std::string message;
  explicit operator bool() const { return ok; }
};

// Compares the gradients of function(inputs) with central differences, for each float64 input that
// requires grad. `function` must be deterministic and must not change its inputs.
// Non-differentiable and undefined outputs are passed over. Throws Error for inputs that cannot be
// checked: those that require grad have to be float64, and one at least has to require grad.
GradcheckResult gradcheck(const TensorFunction& function, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {});

// The same for the gradients of the gradients: gradcheck of the function that maps the inputs and
// random grad_outputs to the gradients, recorded with create_graph.
GradcheckResult gradgradcheck(const TensorFunction& function, const std::vector<Tensor>& inputs,
                              const GradcheckOptions& options = {});

}  // namespace mytorch::autograd
