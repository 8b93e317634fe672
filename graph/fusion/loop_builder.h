// Building loop bodies (loop_body.h) from the arguments of a step.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "dispatcher/table/fields.h"
#include "graph/fusion/loop_body.h"

namespace mytorch::graph {

inline constexpr mt_dtype kIndexType = {MT_INT, 64, 1}, kTruthType = {MT_BOOL, 8, 1};

inline bool is_named(const char* op, std::string_view name) { return name == op; }
inline bool is_float_type(mt_dtype dtype) {
  return dtype.code == MT_FLOAT || dtype.code == MT_BFLOAT;
}
inline bool is_same_type(mt_dtype a, mt_dtype b) { return dtype_bits(a) == dtype_bits(b); }

// Return an argument of a step by its name, and its first result.
const mt_tensor* tensor_of(const OpInfo& op, const void* args, std::string_view name);
int64_t int_of(const OpInfo& op, const void* args, std::string_view name);
inline const mt_tensor* output_of(const OpInfo& op, const void* args) {
  return field<const mt_tensor*>(args, op.outputs[0].offset);
}

// A program of a call whose record has none: nodes, of which the last one is its output.
struct MadeProgram {
  std::vector<mt_node> nodes;
  mt_program_output output{};
  mt_program program{};

  mt_node& add(const char* op, int32_t type);
  void finish(const char* name);
};

class LoopBuilder {
 public:
  explicit LoopBuilder(LoopBody* body) : body_(*body) {}

  // Begins a loop over the shape of a tensor. Returns false if it has no elements.
  bool begin(const mt_tensor* shaped, int inner);
  // The loop, or the rows of a loop.
  const Dims& elements() const { return body_.shape; }
  Dims rows() const { return Dims(body_.shape.begin(), body_.shape.end() - body_.inner); }

  // Return the number of an operand, or -1 if a loop cannot hold it.
  int tensor(const mt_tensor* tensor, const Dims& over);
  int number(mt_dtype dtype, double value);
  // The same for a tensor with the shape of the rows, or with ones in place of the dimensions that
  // they leave out.
  int tensor_of_rows(const mt_tensor* tensor);
  int temporary(mt_dtype dtype, const Dims& over) {
    return add({LoopOperand::kTemporary, nullptr, dtype, over, Dims(over.size(), 1)});
  }
  // Notes that a call compares 16-bit floats.
  void note_compared(const std::vector<int>& inputs);
  int position();
  int add(LoopOperand operand);
  const LoopOperand& operand(int at) const { return body_.operands[static_cast<size_t>(at)]; }

  // Append a call. Return false if an operand is missing.
  bool call(LoopCall call);
  // A call of a record without numbers, whose inputs are in the order of its arguments.
  bool call_record(const char* name, mt_dtype compute, std::vector<int> inputs, int result);
  void set_selects() { body_.selects = true; }
  // Moves the calls from number `begin` on to those that a computed table has in their place.
  void move_to_computed(size_t begin, int table, int elements);
  size_t num_calls() const { return body_.calls.size(); }
  LoopCall last_call() const { return body_.calls.back(); }

 private:
  LoopBody& body_;
};

// Returns the program of a load: the element of a table, its first input, with an index in range.
const mt_program* load_program();

// Fill the body of a step of operators that read or write elements by an index, and of softmax.
// Return false if the step is no such loop.
bool select_body(const OpInfo& op, const void* args, LoopBuilder& b);
bool softmax_body(const OpInfo& op, const void* args, LoopBuilder& b);

}  // namespace mytorch::graph
