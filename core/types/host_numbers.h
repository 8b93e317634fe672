// Numbers as operands of kernels: their values, and what types of 16 bits make of them.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"
#include "mytorch/dtype.h"

namespace mytorch {

// Returns the value of an operand that was made of a real number.
inline double number_of(const mt_tensor* operand) {
  const void* const data = operand->dl.data;
  switch (from_abi(operand->dl.dtype)) {
    case kBool:
      return *static_cast<const bool*>(data) ? 1 : 0;
    case kInt64:
      return static_cast<double>(*static_cast<const int64_t*>(data));
    default:
      return *static_cast<const double*>(data);
  }
}

inline bool is_16_bit_float(ScalarType type) { return type == kFloat16 || type == kBFloat16; }

// Returns the number of a type of 16-bit floats that is nearest to `value`.
inline double rounded_to(ScalarType type, double value) {
  const auto narrow = static_cast<float>(value);
  return type == kFloat16 ? static_cast<float>(Half(narrow)) : static_cast<float>(BFloat16(narrow));
}

}  // namespace mytorch
