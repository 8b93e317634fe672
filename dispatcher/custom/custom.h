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
  const OpEntry* gradient = nullptr;  // the operator that computes it, where one does
  OpInfo info{};
  OpEntry entry;

  bool decomposes() const { return spec.gradient == "decompose"; }
};

// Calls it with a value for each argument.
std::vector<Value> call_custom(const CustomOperator& op, const std::vector<Value>& args);
// The same below the layers: nothing is recorded.
std::vector<Value> run_custom(const CustomOperator& op, const std::vector<Value>& args);

// A kernel of it, or the fallback's, writes these results.
void run_custom_into(const CustomOperator& op, const std::vector<Value>& args,
                     const std::vector<Tensor>& outputs);

// Set by autograd: calls an operator that has a gradient, and records it where it must be.
extern std::vector<Value> (*record_custom)(const CustomOperator& op,
                                           const std::vector<Value>& args);

// Registers the operators that a backend brings. Their kernels may leave their hash 0.
void add_operators_of(const Backend& backend);

}  // namespace mytorch
