// The words of the programs in generated tables:
//
//   constexpr mt_node kNodes0[] = {input(offsetof(Args, self)), node("log2", 0)};
//   constexpr mt_program_output kOutputs0[] = {{1, offsetof(Args, out)}};
//   constexpr mt_program kProgram0 = program<Args>(0x1c5a2c0d5f4b9e37, kNodes0, kOutputs0);
#pragma once

#include <cstddef>
#include <cstdint>

#include "mytorch/abi.h"

namespace mytorch::row {

// A node operation in the compute type, with the numbers of its operands.
constexpr mt_node node(const char* op, int32_t a = -1, int32_t b = -1, int32_t c = -1) {
  mt_node made{};
  made.op = op;
  made.type = MT_TYPE_COMPUTE;
  made.a[0] = a;
  made.a[1] = b;
  made.a[2] = c;
  return made;
}
constexpr mt_node as_bool(mt_node made) {
  made.type = MT_TYPE_BOOL;
  return made;
}
constexpr mt_node as_index(mt_node made) {
  made.type = MT_TYPE_INDEX;
  return made;
}
constexpr mt_node input(uint32_t offset) {
  mt_node made = node("input");
  made.offset = offset;
  return made;
}
constexpr mt_node scalar(uint32_t offset, int32_t field = MT_FIELD_SCALAR) {
  mt_node made = node("scalar");
  made.field = field;
  made.offset = offset;
  return made;
}
constexpr mt_node constant(double value) {
  mt_node made = node("const");
  made.value = value;
  return made;
}
constexpr mt_node state(int32_t component) {
  mt_node made = node("state");
  made.component = component;
  return made;
}

// How a reduce program folds a node. mt_program explains the fields.
struct Fold {
  const char* fold = nullptr;
  int32_t step = -1;
  int32_t dim_field = MT_DIM_ALL;
  uint32_t dim_offset = 0;
  uint32_t keepdim_offset = 0;
};

// The program of one variant.
template <class Args, size_t num_nodes, size_t num_outputs>
constexpr mt_program program(uint64_t hash, const mt_node (&nodes)[num_nodes],
                             const mt_program_output (&outputs)[num_outputs], uint32_t variant = 0,
                             const Fold& fold = {}) {
  mt_program made{};
  made.size = sizeof(mt_program);
  made.name = Args::kOperator;
  made.variant = variant;
  made.hash = hash;
  made.nodes = nodes;
  made.num_nodes = num_nodes;
  made.num_outputs = num_outputs;
  made.outputs = outputs;
  made.fold = fold.fold;
  made.step = fold.step;
  made.dim_offset = fold.dim_offset;
  made.dim_field = fold.dim_field;
  made.keepdim_offset = fold.keepdim_offset;
  return made;
}

}  // namespace mytorch::row
