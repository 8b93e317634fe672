// Access to the fields of an argument struct by its generated description.
#pragma once

#include <cstring>

#include "dispatcher/table/op.h"

namespace mytorch {

template <class T>
T& field(const void* args, uint32_t offset) {
  return *reinterpret_cast<T*>(const_cast<char*>(static_cast<const char*>(args)) + offset);
}

// Calls f(const mt_tensor*& operand, const ArgInfo&) for each tensor input in `args`. `f` may
// replace the operand, including those of a list, whose pointers lie in the caller's frame.
template <class F>
void for_each_input(const OpInfo& op, const void* args, F f) {
  for (int i = 0; i < op.num_args; ++i) {
    const ArgInfo& arg = op.args[i];
    if (arg.offset == kNoField) continue;
    if (arg.type == ArgType::kTensor || arg.type == ArgType::kOperand) {
      auto& operand = field<const mt_tensor*>(args, arg.offset);
      if (operand != nullptr) f(operand, arg);
    } else if (arg.type == ArgType::kTensorList) {
      auto& list = field<mt_tensor_list>(args, arg.offset);
      for (int64_t k = 0; k < list.size; ++k) {
        auto& operand = const_cast<const mt_tensor*&>(list.data[k]);
        if (operand != nullptr) f(operand, arg);
      }
    }
  }
}

template <class F>
void for_each_output(const OpInfo& op, const void* args, F f) {
  for (int i = 0; i < op.num_outputs; ++i) {
    if (op.outputs[i].offset == kNoField) continue;
    auto& operand = field<const mt_tensor*>(args, op.outputs[i].offset);
    if (operand != nullptr) f(operand, op.outputs[i]);
  }
}

inline const mt_args_header& header(const void* args) {
  return *static_cast<const mt_args_header*>(args);
}

// Returns the program that a call computes.
inline const mt_program& program_of(const OpInfo& op, const void* args) {
  const mt_args_header& h = header(args);
  const bool other = h.compute.code == MT_COMPLEX && op.complex_programs != nullptr;
  return *(other ? op.complex_programs : op.programs)[h.variant];
}

inline uint32_t dtype_bits(mt_dtype dtype) {
  uint32_t bits;
  std::memcpy(&bits, &dtype, sizeof(bits));
  return bits;
}

}  // namespace mytorch
