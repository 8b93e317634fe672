// Span functions: a pointwise program over contiguous arrays, the unit that codegen emits and
// everything else in pointwise/ and reduce/ is made of.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"

namespace mytorch::cpu {

// The types that spans are emitted for. The others are staged: float16 and bfloat16 in float,
// bool and the integers of 8 and 16 bits in int32.
enum Lane : int { kFloat32 = 0, kFloat64 = 1, kInt32 = 2, kInt64 = 3 };
inline constexpr int kLanes = 4;
inline constexpr int64_t kLaneBytes[kLanes] = {4, 8, 4, 8};

union Number {
  float f32;
  double f64;
  int32_t i32;
  int64_t i64;
};

inline constexpr int kMaxScalars = 8;

inline constexpr int kMaxInputs = 8;
inline constexpr int kMaxOutputs = 6;

// Rows for one call of a span: short ones would not be worth a call each.
struct SpanRows {
  int64_t count = 1;
  uint32_t single = 0;  // bit i: of input i a row has one element, which counts for all
  int64_t by[kMaxInputs + kMaxOutputs];  // bytes to the next row: of the inputs, then the outputs
};

// What a span reads besides its operands.
struct Scalars {
  Number value[kMaxScalars];  // of the "scalar" nodes in node order, in the type of the span
  int64_t not_mask = -1;      // what bitwise_not flips: every bit; of a bool only the lowest
  const void* self = nullptr;
  // Only programs that say `streams` heed these, one at a time: to store results past the caches,
  // and, with two inputs or more, that there are rows of `n` elements.
  bool stream = false;
  const SpanRows* rows = nullptr;
};

// Computes `n` elements. Operands are contiguous arrays of the span's type; those of type BOOL are
// bytes that are 0 or 1. An output may be NULL (not wanted) or exactly one of the inputs. False
// after an integer division by zero, which leaves the outputs unspecified.
using Span = bool (*)(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                      int64_t n);

// One program for each lane type; NULL where it has no meaning there.
struct SpanFns {
  Span fn[kLanes];
};

// A tensor argument or an output; `type` is MT_TYPE_COMPUTE, MT_TYPE_BOOL or MT_TYPE_INDEX.
struct Slot {
  uint32_t offset;
  int32_t type;
};
// A "scalar" node.
struct ScalarSlot {
  uint32_t offset;
  int32_t field;  // MT_FIELD_*
};

// One variant of a pointwise op.
struct PointwiseProgram {
  const Slot* inputs;
  const ScalarSlot* scalars;
  const Slot* outputs;
  int32_t num_inputs;
  int32_t num_scalars;
  int32_t num_outputs;
  int32_t cost;  // of an element, in additions
  bool narrow;   // int32 gives what 8 and 16 bits would, once truncated
  bool streams;  // the spans heed Scalars::stream and ::rows
  SpanFns spans;
  const void* self;  // goes to the span in Scalars::self
};

}  // namespace mytorch::cpu
