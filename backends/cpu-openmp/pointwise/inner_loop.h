// Inner loops: pointwise programs over contiguous arrays. Code generation emits them; pointwise/
// and reduce/ are built on them.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"

namespace mytorch::cpu {

// The types that inner loops compute in. Other dtypes are staged: float16 and bfloat16 as float32,
// bool and the integers of 8 and 16 bits as int32.
enum ComputeType : int { kFloat32 = 0, kFloat64 = 1, kInt32 = 2, kInt64 = 3 };
inline constexpr int kComputeTypes = 4;
inline constexpr int64_t kComputeBytes[kComputeTypes] = {4, 8, 4, 8};

union Number {
  float f32;
  double f64;
  int32_t i32;
  int64_t i64;
};

inline constexpr int kMaxScalars = 8;

inline constexpr int kMaxInputs = 8;
inline constexpr int kMaxOutputs = 6;

// Rows that one call of an inner loop computes, because one call per short row is too expensive.
struct InnerRows {
  int64_t count = 1;
  uint32_t single = 0;  // bit i: a row of input i has one element, which is broadcast
  int64_t
      by[kMaxInputs + kMaxOutputs];  // bytes to the next row, of the inputs and then the outputs
};

// The arguments of an inner loop besides its operands.
struct Scalars {
  Number value[kMaxScalars];  // of the "scalar" nodes in node order, in the compute type
  int64_t not_mask = -1;      // the bits that bitwise_not flips: all, or the lowest one of a bool
  const void* self = nullptr;
  // Only programs with `streams` use these, and only one of them at a time: `stream` requests
  // non-temporal stores; `rows`, for programs with at least two inputs, describes rows of `n`
  // elements.
  bool stream = false;
  const InnerRows* rows = nullptr;
};

// Computes `n` elements. Operands are contiguous arrays of the compute type; those of type BOOL are
// bytes, 0 or 1. An output may be NULL (not wanted) or equal to an input. Returns false after an
// integer division by zero, which leaves the outputs unspecified.
using InnerLoop = bool (*)(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                           int64_t n);

// A program's inner loop for each compute type; NULL for unsupported types.
struct InnerLoops {
  InnerLoop fn[kComputeTypes];
};

// The field of a tensor, an input or an output, in an argument struct. `type` is MT_TYPE_COMPUTE,
// MT_TYPE_BOOL or MT_TYPE_INDEX.
struct OperandField {
  uint32_t offset;
  int32_t type;
};
// The field of the number of a "scalar" node.
struct ScalarField {
  uint32_t offset;
  int32_t field;  // MT_FIELD_*
};

// A variant of a pointwise operator.
struct PointwiseProgram {
  const OperandField* inputs;
  const ScalarField* scalars;
  const OperandField* outputs;
  int32_t num_inputs;
  int32_t num_scalars;
  int32_t num_outputs;
  int32_t cost;  // per element, in additions
  bool narrow;   // truncated int32 results equal those of 8 and 16 bits
  bool streams;  // the inner loops use Scalars::stream and Scalars::rows
  InnerLoops loops;
  const void* self;  // passed in Scalars::self
};

}  // namespace mytorch::cpu
