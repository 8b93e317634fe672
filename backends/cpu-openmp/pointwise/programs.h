// The generated description of every pointwise and reduce operator: its inner loops, and the
// offsets of its operands in its argument struct.
#pragma once

#include <cstdint>
#include <span>

#include "backends/cpu-openmp/pointwise/inner_loop.h"

namespace mytorch::cpu {

struct PointwiseOp {
  const char* name;  // "add.Tensor"
  const char* base;  // "add", for errors
  uint64_t hash;
  const PointwiseProgram* variants;
  int32_t num_variants;
};

enum class Fold { kSum, kProd, kMax, kMin, kArgmax, kArgmin, kAll, kAny, kWelford, kLogsumexp };

// The offset of an input of `end` that is the number of reduced elements instead of a component of
// the state.
inline constexpr uint32_t kCountLeaf = UINT32_MAX;

struct ReduceOutput {
  uint32_t offset;
  int32_t type;
  int32_t component;  // of the state; -1 for the next output of `end`
};

// A variant of a reduction: it folds the outputs of `step` (NULL: the input), then computes its
// outputs with `end` (NULL: each output is a component of the state).
struct ReduceProgram {
  Fold fold;
  int32_t dim_field;  // MT_DIM_*
  uint32_t dim_offset;
  uint32_t input;  // offset of the tensor in the argument struct
  const PointwiseProgram* step;
  const PointwiseProgram* end;  // the offsets of its inputs are components or kCountLeaf
  const ReduceOutput* outputs;
  int32_t num_outputs;
};

struct ReduceOp {
  const char* name;
  const char* base;
  uint64_t hash;
  const ReduceProgram* variants;
  int32_t num_variants;
};

// The program of a single node operation.
struct NodeLoop {
  const char* name;
  int32_t type;     // MT_TYPE_* of the result
  int32_t operand;  // MT_TYPE_* of the first operand
  int32_t arity;
  int32_t cost;
  InnerLoops loops;
};

struct Programs {
  std::span<const PointwiseOp> pointwise;
  std::span<const ReduceOp> reduce;
  std::span<const NodeLoop> nodes;
};
// Returns the descriptions, with inner loops for the instruction set that is in use at the first
// call: kernels keep pointers to them.
const Programs& programs();

}  // namespace mytorch::cpu
