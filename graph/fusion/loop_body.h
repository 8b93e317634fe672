// What a step computes, as calls over a loop: of programs of records, or of elements that an index
// selects.
#pragma once

#include <string>
#include <vector>

#include "core/types/dims.h"
#include "mytorch/abi_fused.h"

namespace mytorch::graph {

struct PlanStep;

// A value of a body.
struct LoopOperand {
  enum Kind : uint8_t {
    kTensor,     // an element of a tensor
    kTable,      // a tensor, of which an index selects an element
    kNumber,     // a number, or the element of an operand on the host
    kTemporary,  // of calls of the body
    kPosition,   // the place of the element in its row, as int64
  };
  Kind kind = kTensor;
  const mt_tensor* tensor = nullptr;  // of kTensor and kTable
  mt_dtype dtype{};
  // The loop over which the value has elements: the whole one, or the rows of one with reductions.
  // Tensors are broadcast to it, with a stride, in elements, for each dimension.
  Dims shape{}, strides{};
  int64_t size = 0, stride = 0;  // of a table: the dimension that the index selects from
  double number = 0;             // of kNumber
  // Whether 16-bit floats are compared with a number that was rounded as they are: values of a
  // higher precision would differ from it.
  bool compared = false;
};

struct LoopCall {
  const char* name;
  const mt_program* program;
  mt_dtype compute;
  std::vector<int> inputs;  // the operand of each "input" node, in order
  std::vector<mt_scalar> scalars;
  std::vector<int> results;  // the operand of each output, -1: not wanted
};

struct LoopBody {
  Dims shape;
  int inner = 0;  // the number of last dimensions that are a row; 0: it has none
  std::vector<LoopOperand> operands;
  std::vector<LoopCall> calls;
  bool selects = false;  // by an index, which may be out of range
  // If the table is computed in the same loop, whose rows are then those of the table: the calls in
  // place of the others, and the operands that stand for the table, and for its elements in them.
  std::vector<LoopCall> computed;
  int table = -1, elements = -1;

  // Returns whether a step is a loop of real numbers over at least one element: a pointwise call, a
  // copy, a reduction of the last dimensions, or one that reads or writes elements of rows by an
  // index.
  static bool of(const PlanStep& step, LoopBody* body);
};

}  // namespace mytorch::graph
