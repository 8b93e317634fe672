// A program as the backend keeps it: its own copy of the nodes, and the text of their computation
// in the language of the prelude.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mytorch/abi.h"

namespace mytorch::cuda {

// Numbers for dtypes, 0 for none: small enough for the keys of kernels.
using Code = uint8_t;
inline constexpr Code kBool = 1, kUint8 = 2, kInt8 = 3, kInt16 = 4, kInt32 = 5, kInt64 = 6,
                      kFloat16 = 7, kBfloat16 = 8, kFloat32 = 9, kFloat64 = 10;
Code code_of_slow(mt_dtype dtype);
inline Code code_of(mt_dtype dtype) {
  if (dtype.bits == 32) return dtype.code == MT_FLOAT ? kFloat32 : kInt32;
  return code_of_slow(dtype);
}
const char* type_name(Code code);  // of elements in memory: "f32"
int size_of(Code code);
mt_dtype dtype_of_code(Code code);

// What a node's value is in generated code: "float", "double", "int", "i64", "bool".
const char* value_name(int32_t type, Code compute);

class Program {
 public:
  explicit Program(const mt_program& program);

  struct Argument {
    int32_t node;
    uint32_t offset;  // in the argument struct
    int32_t type;     // MT_TYPE_*
    int32_t field;    // of scalars
  };
  std::string base;  // "add", for errors
  std::string name;  // "add.Tensor"
  std::vector<mt_node> nodes;
  std::vector<Argument> inputs;   // in node order
  std::vector<Argument> scalars;  // likewise
  std::vector<Argument> outputs;
  std::string fold;  // empty: pointwise
  int32_t step;
  uint32_t dim_offset;
  int32_t dim_field;

  // Whether its operations have a meaning in this type; of floats there are no bits.
  bool takes(Code compute) const;
  // Whether it divides integers in this type: the kernel then has a word (prelude.cuh, Faults)
  // where a division by zero is noted.
  bool divides(Code compute) const;
  // Which nodes the roots need.
  std::vector<bool> needed(std::span<const int32_t> roots) const;
  // Declarations of the values of all operations among `wanted`: "const float v2 = node::add(v0,
  // v1);". Inputs, scalars, states and the count are not among them: the kernel declares vN for
  // these.
  std::string text(const std::vector<bool>& wanted, Code compute) const;

 private:
  std::vector<std::string> ops_;  // nodes[i].op points in here
};

// A number as the kernel's parameter of a node of this type: 8 bytes, the value in the lower ones.
uint64_t number_bits(const void* args, const Program::Argument& scalar, Code compute);
// The same of a count.
uint64_t count_bits(int64_t count, int32_t type, Code compute);
// The element of a HOST operand, converted to the type of the node.
uint64_t operand_bits(const mt_tensor* operand, int32_t type, Code compute);

// A pointwise or reduce operator of ops.yaml.
struct ProgramOp {
  const char* name;
  uint64_t hash;
  const mt_program* const* variants;
  int32_t num_variants;
};
// Generated: all of them.
std::span<const ProgramOp> all_programs();

}  // namespace mytorch::cuda
