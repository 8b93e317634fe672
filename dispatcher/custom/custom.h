// Operators registered at run time.
#pragma once

#include <string>
#include <vector>

#include "dispatcher/choice/choice.h"
#include "dispatcher/custom/schema.h"
#include "dispatcher/table/op.h"
#include "mytorch/operator.h"

namespace mytorch {

struct CustomOperator {
  explicit CustomOperator(OperatorSpec given);

  OperatorSpec spec;
  Schema schema;
  const OpEntry* gradient = nullptr;  // the operator that computes the gradient, if any
  OpInfo info{};
  OpEntry entry;

  bool decomposes() const { return spec.gradient == "decompose"; }
};

// A layer's wrapper of the operator's only form, stored in its table row.
using CustomWrapper = std::vector<Value> (*)(const CustomOperator& op,
                                             const std::vector<Value>& args);

// Calls the operator through the layers, with one value per argument.
std::vector<Value> call_custom(const CustomOperator& op, const std::vector<Value>& args);
// Called by the wrapper of `layer`: continues with the layers below it.
std::vector<Value> next_custom(uint32_t layer, const CustomOperator& op,
                               const std::vector<Value>& args);
// Calls the operator below all layers.
std::vector<Value> run_custom(const CustomOperator& op, const std::vector<Value>& args);

// Runs a kernel, or the fallback, which writes to existing results.
void run_custom_into(const CustomOperator& op, const std::vector<Value>& args,
                     const std::vector<Tensor>& outputs);

// Autograd's wrapper of operators with a gradient; null until its library is initialized.
extern CustomWrapper record_custom;
// Autocast's wrapper of operators with a policy; null like the above.
extern CustomWrapper cast_custom;
// The wrapper of vmap; null like the above.
extern CustomWrapper batch_custom;
// The wrapper of graph capture; null like the above.
extern CustomWrapper capture_custom;

// Registers the operators of a backend. Their kernels may leave the hash 0.
void add_operators_of(const Backend& backend);

}  // namespace mytorch
