// Evaluates the conditions and the replacements of rules.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/ir/ir.h"
#include "graph/rules/rule.h"

namespace mytorch::graph {

// What a name of a pattern stands for: a value of the graph, or a constant.
struct BoundName {
  ValueId id = kNoValue;
  Value constant;
};

class Evaluator {
 public:
  using Lookup = std::function<const BoundName&(const std::string& name)>;
  // Returns a tensor in place of a value of the graph. Without it, expressions may use what is
  // known of values: attributes and functions.
  using Tensors = std::function<Tensor(ValueId)>;

  Evaluator(const Graph& graph, Lookup lookup, Tensors tensors)
      : graph_(graph), lookup_(std::move(lookup)), tensors_(std::move(tensors)) {}

  // Returns the values of an expression: several for a call of an operator with several results.
  // Throws Error(kValue) or Error(kType) if it has none.
  std::vector<Value> values(const Expr& e) const;
  Value value(const Expr& e) const;
  bool is_true(const Expr& e) const;

 private:
  // The type and shape of a value or of a computed tensor.
  struct Facts {
    ScalarType dtype;
    std::vector<int64_t> sizes;
    Device device;
  };
  // Returns false if the expression is no tensor.
  bool facts(const Expr& e, Facts* found) const;
  Value attribute(const Expr& e) const;
  Value function(const Expr& e) const;
  Value binary(const Expr& e) const;
  Value item(const Expr& e) const;
  bool compare(const Expr& e) const;

  const Graph& graph_;
  const Lookup lookup_;
  const Tensors tensors_;
};

}  // namespace mytorch::graph
