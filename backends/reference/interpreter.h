// Evaluates the nodes of a program for one element.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/reference/node_ops.h"
#include "mytorch/abi.h"
#include "mytorch/backend/dtype.h"

namespace mytorch::reference {

// The nodes to evaluate, in order.
using Plan = std::vector<int32_t>;

// A copy of a program, for one compute type.
class Interpreter {
 public:
  // Throws Declined if the program has an unknown operation, which a newer host may send.
  Interpreter(const mt_program& program, mt_dtype compute);

  const std::string& op() const { return op_; }
  bool floating() const { return floating_; }
  mt_dtype compute() const { return compute_; }
  int32_t num_nodes() const { return static_cast<int32_t>(nodes_.size()); }

  // Returns the program's outputs for which a call has a tensor.
  std::vector<mt_program_output> requested(const void* args) const;
  // Returns the nodes that `roots` depend on, in order.
  Plan plan(const std::vector<int32_t>& roots) const;
  Plan plan(const std::vector<mt_program_output>& outputs) const;
  // Returns the nodes of a plan that are tensor arguments.
  std::vector<int32_t> inputs(const Plan& plan) const;
  uint32_t offset(int32_t node) const { return nodes_[static_cast<size_t>(node)].node.offset; }

  // Reads an element of an input node, converted to the node's type.
  using Load = Value (*)(const void* element);
  Load load(int32_t node, const mt_tensor* operand) const;
  // Writes the value of a node as an element, rounded once.
  using Store = void (*)(Value value, void* element);
  Store store(int32_t node, mt_dtype dtype) const;

  // Sets the values that are equal for all elements: constants and scalar arguments.
  void set_constants(const Plan& plan, const void* args, std::vector<Value>& values) const;
  // Evaluates the plan's operations; inputs and constants must be set. `states` has the components
  // of the reduced state and `count` is the number of reduced elements; a step uses neither.
  void run(const Plan& plan, std::vector<Value>& values, const Value* states = nullptr,
           int64_t count = 0) const;

 private:
  enum class Kind { kInput, kScalar, kConst, kCast, kCount, kState, kOp };
  struct Node {
    mt_node node;
    Kind kind;
    const NodeOp* op;
  };

  bool is_real(int32_t node) const;  // returns whether its value is a double
  Value cast(const Node& node, Value value) const;

  std::string op_;
  mt_dtype compute_;
  bool floating_;
  std::vector<Node> nodes_;
  std::vector<mt_program_output> outputs_;
};

// Returns the low bits of `value` in the integer type `dtype`, sign- or zero-extended. Bools are
// not changed: writing an element makes them 0 or 1.
int64_t wrap(int64_t value, mt_dtype dtype);

}  // namespace mytorch::reference
