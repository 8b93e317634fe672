// The generated description of every pointwise and reduce op: which span computes it, and where its
// operands lie in its argument struct. Filled for the CPU at hand when first asked for.
#pragma once

#include <cstdint>
#include <span>

#include "backends/cpu-openmp/pointwise/span.h"

namespace mytorch::cpu {

struct PointwiseOp {
  const char* name;  // "add.Tensor"
  const char* base;  // "add", for errors
  uint64_t hash;
  const PointwiseProgram* variants;
  int32_t num_variants;
};

enum class Fold { kSum, kProd, kMax, kMin, kArgmax, kArgmin, kAll, kAny, kWelford, kLogsumexp };

// In place of an offset, where an input of a reduction's end is no component of the state: how many
// elements were reduced.
inline constexpr uint32_t kCountLeaf = UINT32_MAX;

struct ReduceOutput {
  uint32_t offset;
  int32_t type;
  int32_t component;  // of the state, or -1: the next output of `end`
};

// One variant of a reduction: fold the outputs of `step` (NULL: the input itself), then compute
// outputs by `end` (NULL: each is a component of the state).
struct ReduceProgram {
  Fold fold;
  int32_t dim_field;  // MT_DIM_*
  uint32_t dim_offset;
  uint32_t input;  // offset of the tensor
  const PointwiseProgram* step;
  const PointwiseProgram* end;  // Slot::offset of its inputs is a component or kCountLeaf
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

// A node operation as a program of one node.
struct NodeSpan {
  const char* name;
  int32_t type;     // MT_TYPE_* of its result
  int32_t operand;  // and of its first operand
  int32_t arity;
  int32_t cost;
  SpanFns spans;
};

struct Programs {
  std::span<const PointwiseOp> pointwise;
  std::span<const ReduceOp> reduce;
  std::span<const NodeSpan> nodes;
};
const Programs& programs();

}  // namespace mytorch::cpu
