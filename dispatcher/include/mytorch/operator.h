// Operators that are not in ops.yaml, made by a program while it runs. (A backend's library brings
// its own through mt_backend::operators; docs/custom_operators.md.)
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
#include <functional>
#include <string>
#include <vector>

#include "mytorch/call.h"

namespace mytorch {

// What a result will be.
struct ResultSpec {
  std::vector<int64_t> sizes;
  ScalarType dtype = kFloat32;
  Device device;
};

struct OperatorSpec {
  // As in ops.yaml, with a name of the form "library::name". Results are Tensors, one or more, and
  // no argument is written.
  std::string schema;
  std::string doc;
  // The decision about its derivative, which has to be made:
  //   "decompose"  through what `body` calls
  //   "none"      its results have no history
  //   an operator's name: it is called with the arguments that it names: `grad` (`grad0`, `grad1`,
  //   ... where there are several results), the arguments of this operator and, as `result` or
  //   `result0`, ..., its results. It returns a gradient for each Tensor argument of this operator,
  //   in their order. Registered before; itself differentiable or not.
  std::string gradient;
  // What it does where no kernel takes a call. Gets a value for each argument.
  std::function<std::vector<Value>(const std::vector<Value>& args)> body = nullptr;
  // Where kernels may be registered: shape, type and device of each result.
  std::function<std::vector<ResultSpec>(const std::vector<Value>& args)> infer = nullptr;
};

// For the life of the process; then `call`, `mytorch ops` and every backend know it. Throws
// Error(kValue) for a schema that does not parse, a name that is taken, or a decision that is
// missing.
void register_operator(OperatorSpec spec);

}  // namespace mytorch
