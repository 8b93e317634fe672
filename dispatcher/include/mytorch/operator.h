// Operators defined by a program at run time. (A backend defines operators through
// mt_backend::operators; see docs/custom_operators.md.)
//
//   register_operator({.schema = "demo::swish(Tensor x, *, float beta=1) -> Tensor",
//                      .doc = "x * sigmoid(beta * x)",
//                      .gradient = "decompose",
//                      .body = [](const std::vector<Value>& args) -> std::vector<Value> {
//                        const Tensor& x = args[0].tensor();
//                        return {x * sigmoid(x * args[1].scalar())};
//                      }});
//   Tensor y = call("demo::swish", {x})[0].tensor();
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/call.h"
#include "mytorch/std_function.h"

namespace mytorch {

// The shape, type and device of a result.
struct ResultSpec {
  std::vector<int64_t> sizes;
  ScalarType dtype = kFloat32;
  Device device;
};

struct OperatorSpec {
  // A schema as in ops.yaml, with a name of the form "library::name". All results are Tensors, at
  // least one; no argument may be written.
  std::string schema;
  std::string doc;
  // How to compute the gradient; required. One of:
  //   "decompose"  differentiates the operators that `body` calls
  //   "none"       the results have no history
  //   NAME         calls the operator NAME, which must be registered before this one
  // NAME's arguments are selected by their names: `grad` (or `grad0`, `grad1`, ... if there are
  // several results), the arguments of this operator, and its results as `result` or `result0`,
  // `result1`, ... NAME returns one gradient per Tensor argument of this operator, in order. It may
  // itself be differentiable.
  std::string gradient;
  // Computes the results if no kernel takes the call. Receives one value per argument.
  std::function<std::vector<Value>(const std::vector<Value>& args)> body = nullptr;
  // Returns the shape, dtype and device of each result. Required if kernels are to be registered.
  std::function<std::vector<ResultSpec>(const std::vector<Value>& args)> infer = nullptr;
  // The autocast policy: "none", "lower", "float32" or "widest" (mytorch/autocast.h).
  std::string autocast = "none";
};

// Registers an operator for the life of the process; `call`, `mytorch ops` and every backend then
// know it. Throws Error(kValue) if the schema does not parse, the name is taken, `gradient` is
// missing, or `autocast` is not a policy.
void register_operator(OperatorSpec spec);

}  // namespace mytorch
