// A fused program, as kernels are made from it. The numbers of its calls are parameters of the
// kernels, so that programs that differ in them alone have the same kernels; those that make other
// code are part of the text: bools, 0, 1 and -1, and exponents.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/programs/program.h"
#include "mytorch/abi_fused.h"

namespace mytorch::cuda {

// The backend's copy of a fused program.
struct FusedSource {
  // Throws Declined for what kernels cannot hold.
  explicit FusedSource(const mt_fused_program& program);

  struct Value {
    int32_t kind;  // MT_FUSED_*
    bool row;
    bool is_table() const { return kind == MT_FUSED_TABLE; }
    Code type;
    double number;
    int phase = 0;  // how many reductions, one after the other, it depends on
    int call = -1;  // that computes it
    // Of rows: the phase from which its elements stay in registers, because they are expensive and
    // a later phase reads them again; -1: none.
    int kept = -1;
  };
  struct Number {
    uint64_t bits = 0;   // as a parameter (number_bits)
    int parameter = -1;  // its place in `numbers`; -1: it is part of the text
  };
  struct Call {
    Program program;
    Code compute;
    std::vector<int32_t> inputs, results;
    // Of each input that is a number, and of each scalar.
    std::vector<Number> input_numbers, scalars;
    bool reduces() const { return !program.fold.empty(); }
    // Whether it computes its first output by a node operation of that name.
    bool is(const char* op) const {
      return std::string_view(program.nodes[static_cast<size_t>(program.outputs[0].node)].op) == op;
    }
  };
  std::string name;
  bool exact;
  bool rows = false;    // has reductions, or indices that select elements
  bool places = false;  // reads the places of elements in their row
  int num_inputs;
  std::vector<Value> values;
  std::vector<Call> calls;
  std::vector<int32_t> outputs;
  struct Parameter {
    const char* type;  // in C++
    uint64_t bits;
  };
  std::vector<Parameter> numbers;
  // A text that is the same for programs with the same kernels.
  std::string structure;

  // ---- of rows. Phase p reads the row for the reductions that depend on p others, one after the
  // other; the last one stores the outputs.
  int phases = 0;  // besides the last one
  struct Phase {
    std::vector<int32_t> targets;  // the elements that it folds or stores
    std::vector<int> calls;        // of elements, that these need, in order
    std::vector<int32_t> inputs;   // the operands of elements that these read
    std::vector<int32_t> kept;     // the values that an earlier phase has kept
  };
  // Returns a phase; `keeps`: whether values are kept in registers.
  Phase phase(int number, bool keeps) const;

 private:
  Number number(const mt_scalar& scalar, const Program& program, const Program::Argument& argument,
                Code compute);
  void add_numbers(const mt_fused_call& from, Call* call);
  void describe(const mt_fused_program& program);
  void choose_kept();
};

// Returns, for each input of a program with reductions, whether several phases read its elements.
std::vector<bool> inputs_that_stay(const FusedSource& source);

}  // namespace mytorch::cuda
