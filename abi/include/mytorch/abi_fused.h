// Fused programs: calls of records over one loop, which a backend compiles into one kernel
// (mt_backend::compile_fused). A value that one call computes and another one reads needs no
// memory. Compiled functions make them (docs/compile.md).
#pragma once

#include "mytorch/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

// A value of the loop: one for each element or, after a reduction, one for each row.
//
// A result has the values of its dtype. Unless the program has MT_FUSED_EXACT, float16 and bfloat16
// results may keep the precision of float32. A table is an input of which a call reads the element
// that an index selects. A position is the place of the element in its row, as int64.
enum {
  MT_FUSED_INPUT = 0,
  MT_FUSED_NUMBER = 1,
  MT_FUSED_RESULT = 2,
  MT_FUSED_TABLE = 3,
  MT_FUSED_POSITION = 4
};
typedef struct mt_fused_value {
  int32_t kind;    // MT_FUSED_*
  int32_t row;     // 1: one for each row
  mt_dtype dtype;  // of the tensor that holds it, or would hold it
  int32_t reserved;
  double number;  // MT_FUSED_NUMBER
} mt_fused_value;

// A call of a pointwise or reduce program. A reduction folds the elements of a row. Programs that
// the host makes have two more node operations:
//   "bound"   a[0] is an int64 index: a[0], if 0 <= a[0] < a[1]. Else the program fails with
//             MT_ERROR_VALUE; the error names the program, the index, a[1], and a[2], the number of
//             the dimension. On a device that reports errors later, computation goes on with 0
//   "load"    the element of the table a[0] with the index a[1], which is in range
typedef struct mt_fused_call {
  const mt_program* program;  // valid for the process
  mt_dtype compute;
  int32_t reserved;
  const int32_t* inputs;     // the value of each "input" node, in the order of the nodes
  const mt_scalar* scalars;  // the number of each "scalar" node, likewise
  const int32_t* results;    // the value of each output of the program, -1: not wanted
} mt_fused_call;

// Hosts make programs of at most 8 inputs and 6 outputs. A backend may decline any.
//
// Programs that differ in their numbers alone (MT_FUSED_NUMBER, scalars) are compiled apart. A
// function whose numbers follow the sizes of its operands has one for each size, so a backend that
// generates code should share it among them, with the numbers as parameters.
enum { MT_FUSED_EXACT = 1u };
typedef struct mt_fused_program {
  size_t size;
  const char* name;  // for messages and profiles
  uint64_t hash;     // of the program: all fields below but `destroy`
  uint32_t flags;    // MT_FUSED_EXACT
  int32_t num_inputs;
  int32_t num_values;
  int32_t num_calls;
  int32_t num_outputs;
  uint32_t value_size;           // sizeof(mt_fused_value) and sizeof(mt_fused_call) of the host,
  uint32_t call_size;            // which later versions may append to
  const mt_fused_value* values;  // the inputs and tables first, num_inputs together
  const mt_fused_call* calls;    // in order
  const int32_t* outputs;        // the values that are stored
  // Where compile_fused may store a function that destroys the kernel, given its `self`; hosts
  // before this field have no place for it (size). The host calls it once, on any thread, when no
  // call of the kernel runs any more. Work that calls have queued, or that a graph of the device
  // holds, may still run later. All that the program points to is valid until then. A kernel
  // without such a function, and what its program points to, stay for the process.
  void (**destroy)(void* self);
} mt_fused_program;

// The argument struct of the kernel. Operands are the inputs, then the outputs. Their shapes
// broadcast to that of the loop; an output of elements has its shape, and one of rows has size 1 in
// the last `inner` dimensions, a row, which reductions reduce. A table has one dimension more, the
// last one, from which its index selects. An output may be exactly one of the inputs, and overlaps
// no other operand.
typedef struct mt_fused_args {
  mt_args_header header;
  int32_t ndim;
  int32_t inner;  // 0 if no call is a reduction, a "bound" or a "load"
  int64_t shape[MT_MAX_DIMS];
  const mt_tensor* operands[1];  // as many as there are
} mt_fused_args;

#ifdef __cplusplus
}  // extern "C"
#endif
