// The backend's copy of a program, and the CUDA C++ text of its computation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/programs/params.h"
#include "mytorch/abi.h"

namespace mytorch::cuda {

// Small numbers for dtypes, used in keys of kernels; 0 is none.
using Code = uint8_t;
inline constexpr Code kBool = 1, kUint8 = 2, kInt8 = 3, kInt16 = 4, kInt32 = 5, kInt64 = 6,
                      kFloat16 = 7, kBfloat16 = 8, kFloat32 = 9, kFloat64 = 10, kComplex64 = 11,
                      kComplex128 = 12;
inline bool is_complex(Code code) { return code >= kComplex64; }
Code code_of_slow(mt_dtype dtype);
inline Code code_of(mt_dtype dtype) {
  if (dtype.bits == 32) return dtype.code == MT_FLOAT ? kFloat32 : kInt32;
  return code_of_slow(dtype);
}
const char* type_name(Code code);  // the prelude's type of elements in memory: "f32"
int size_of(Code code);
mt_dtype dtype_of_code(Code code);

// Returns the C++ type of a node's value in generated code: "float", "double", "int", "i64",
// "bool", "c64", "c128".
const char* value_name(int32_t type, Code compute);

// Returns bytes that are the same for programs alike in all that a Program is made of.
std::string contents_of(const mt_program& program);

class Program {
 public:
  explicit Program(const mt_program& program);

  struct Argument {
    int32_t node;
    uint32_t offset;  // in the argument struct
    int32_t type;     // MT_TYPE_*
    int32_t field;    // MT_FIELD_*, for scalars
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

  // Whether its operations are defined for this compute type: floats have no bitwise operations,
  // complex numbers only those of complex.cuh.
  bool takes(Code compute) const;
  // The type in which a call in this compute type computes. Values that a step makes for a sum,
  // such as squares, are double: they may exceed the range of float32 where the result does not.
  Code computes_in(Code compute) const;
  // Whether it divides integers in this compute type. The kernel then takes Faults (operands.cuh)
  // to report a division by zero.
  bool divides(Code compute) const;
  // Returns, for each node, whether the roots depend on it.
  std::vector<bool> needed(std::span<const int32_t> roots) const;
  // Returns declarations of the values of all operations among `wanted`: "const float v2 =
  // node::add(v0, v1);". The kernel itself declares vN for inputs, scalars, states and the count.
  std::string text(const std::vector<bool>& wanted, Code compute) const;

 private:
  std::string fused_text(const mt_node& node) const;
  std::vector<std::string> ops_;  // nodes[i].op points into these strings
};

// Returns a scalar argument as an 8-byte parameter of a node of this type, with the value in the
// lower bytes. The compute type is not complex.
uint64_t number_bits(const void* args, const Program::Argument& scalar, Code compute);
// The same for a count.
uint64_t count_bits(int64_t count, int32_t type, Code compute);
// The same for the element of a HOST operand, converted to the type of the node.
uint64_t operand_bits(const mt_tensor* operand, int32_t type, Code compute);

// Appends a scalar argument or the element of a HOST operand, for any compute type.
void write_number(const void* args, const Program::Argument& scalar, Code compute, Params& params);
void write_operand(const mt_tensor* operand, int32_t type, Code compute, Params& params);

}  // namespace mytorch::cuda
