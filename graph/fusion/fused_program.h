// The program of several calls, one after the other: values that one call writes and a later one
// reads stay in the program.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/fusion/loop_body.h"
#include "graph/fusion/loop_space.h"
#include "graph/steps/plan_parts.h"
#include "mytorch/abi_fused.h"
#include "mytorch/compile_mode.h"

namespace mytorch::graph {

// A tensor in the space of a loop, with a stride for each dimension.
struct FusedOperand {
  const mt_tensor* tensor;
  TensorPlace place;
  Dims strides;
  // Of a table: the dimension that an index selects from; 0 of others.
  int64_t size = 0, stride = 0;

  // Returns whether both are the same elements of one memory.
  bool operator==(const FusedOperand& other) const;
};

// Returns an operand of a body in the space of its loop.
FusedOperand in_space(const LoopSpace& space, const TensorPlaces& places,
                      const LoopOperand& operand);

// Returns the elements of the table of a body, whose rows are those of the space, or nothing.
std::optional<FusedOperand> elements_of_table(const LoopSpace& space, const TensorPlaces& places,
                                              const LoopBody& body);

class FusedProgram {
 public:
  FusedProgram(CompileMode mode, const LoopSpace& space, const TensorPlaces& places)
      : mode_(mode), space_(space), places_(places) {}

  // Appends the calls of a body. A memory that is written must have the same elements in all
  // operands.
  void add(const LoopBody& body);
  // Leaves out the results for which `needed` is false, and the calls that no other result needs.
  template <class Needed>
  void finish(Needed needed) {
    std::erase_if(outputs_, [&](const auto& output) { return !needed(output.first.tensor); });
    remove_unused();
  }

  const std::vector<FusedOperand>& inputs() const { return inputs_; }
  // The tensors that are written, with their values, in the order of the first write.
  const std::vector<std::pair<FusedOperand, int32_t>>& outputs() const { return outputs_; }
  size_t num_calls() const { return calls_.size(); }
  // Whether an index selects elements; it may be out of range.
  bool selects() const { return selects_; }
  // Whether it writes a memory from which an index selects: threads would not wait for each other.
  bool writes_table() const;

  struct FusedCall {
    const char* name;
    const mt_program* program;
    mt_dtype compute;
    std::vector<int32_t> inputs;
    std::vector<mt_scalar> scalars;
    std::vector<int32_t> results;
  };
  const std::vector<mt_fused_value>& values() const { return values_; }
  const std::vector<FusedCall>& calls() const { return calls_; }
  CompileMode mode() const { return mode_; }
  // Returns "fused_mul_add_tanh".
  std::string name() const;

 private:
  int32_t value_of(const LoopOperand& operand);
  // Returns the value of the elements of the table of a body if the program computes it, else -1.
  int32_t computed_table(const LoopBody& body) const;
  // Computes a value of elements for one element of each row, with the value `index`. Returns the
  // value of rows, or -1 if the element cannot be computed alone.
  // `known` has what it has computed for that index before.
  int32_t selected(int32_t value, int32_t index, std::map<int32_t, int32_t>* known);
  // Returns the table with the elements of an input, or nothing if they have no stride in a row.
  std::optional<FusedOperand> table_of(int32_t input) const;
  int32_t input_value(int32_t kind, mt_dtype dtype, FusedOperand input);
  void set_value(const LoopOperand& operand, int32_t value);
  void add_call(const LoopBody& body, const LoopCall& call, std::vector<int32_t>* computed);
  int32_t number(mt_dtype dtype, double number);
  int32_t append(int32_t kind, mt_dtype dtype, bool row);
  // Returns whether there is one value for each row.
  bool is_row(const Dims& strides) const;
  void remove_unused();

  CompileMode mode_;
  const LoopSpace space_;
  const TensorPlaces& places_;
  bool selects_ = false;
  std::vector<mt_fused_value> values_;
  std::vector<FusedOperand> inputs_;  // of the values of kinds MT_FUSED_INPUT and _TABLE, in order
  std::vector<FusedCall> calls_;
  std::vector<std::pair<FusedOperand, int32_t>> outputs_;
  std::vector<std::pair<FusedOperand, int32_t>> current_;  // the values that tensors have
  int32_t position_ = -1;
  std::map<std::pair<uint64_t, uint32_t>, int32_t> numbers_;
};

}  // namespace mytorch::graph
