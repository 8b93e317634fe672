// Checks gradients against finite differences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/autograd/functional.h"
#include "mytorch/tensor.h"

namespace mytorch::autograd {

struct GradcheckOptions {
  double eps = 1e-6;   // the step of the central differences
  double atol = 1e-5;  // passes if |analytic - numeric| <= atol + rtol * |numeric|
  double rtol = 1e-3;
  double nondet_tol = 0;  // allowed difference between two runs of the same backward
  // Number of random projections of the outputs. Each yields one value to compare per input
  // element. If there are several outputs, each output is also checked alone.
  int projections = 2;
  uint64_t seed = 0;  // of the random weights
};

struct GradcheckResult {
  bool ok = true;
  // Input, element and expected value of the worst disagreement; "" if ok.
  std::string message;
  explicit operator bool() const { return ok; }
};

// Compares the gradients of function(inputs) with central differences, for each float64 or
// complex128 input that requires grad; of complex numbers with respect to both parts. `function`
// must be deterministic and must not modify its inputs. Skips outputs that are undefined or not
// differentiable. Throws Error unless at least one input requires grad, and all that do are float64
// or complex128.
GradcheckResult gradcheck(const TensorFunction& function, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {});

// Checks second derivatives: runs gradcheck on the function that maps the inputs and random
// grad_outputs to the gradients, recorded with create_graph.
GradcheckResult gradgradcheck(const TensorFunction& function, const std::vector<Tensor>& inputs,
                              const GradcheckOptions& options = {});

}  // namespace mytorch::autograd
