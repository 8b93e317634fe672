// The types of a call. The result type of several operands is ATen's: tensors with dimensions take
// precedence over 0-dim tensors, and these over numbers, unless the operand of lower precedence has
// a higher category (bool < integer < float < complex).
#pragma once

#include <cmath>

#include "dispatcher/table/op.h"
#include "mytorch/abi.h"
#include "mytorch/dtype.h"
#include "mytorch/scalar.h"

namespace mytorch {

class ResultType {
 public:
  // A HOST operand without storage is a number; one with storage is a 0-dim CPU tensor.
  void add(const mt_tensor* operand);
  bool empty() const { return !has_[0] && !has_[1] && !has_[2]; }
  ScalarType get() const;

 private:
  ScalarType types_[3] = {};  // of dimensioned tensors, 0-dim tensors, numbers
  bool has_[3] = {};
};

// Throws Error(kType) if an operand has a type that the record excludes. `operands` is in the order
// of the tensor arguments.
void check_types(const OpInfo& op, const mt_tensor* const* operands);

// Throw Error(kType): the operator, or the computation, takes no complex numbers.
[[noreturn]] void refuse_complex(const OpInfo& op, const char* name, ScalarType type);
[[noreturn]] void refuse_complex_number(const OpInfo& op, const char* arg, mt_dtype compute);

// Numbers that do not promote are not truncated: throws Error(kType) for a number with a fraction
// if the compute type is an integer type.
[[noreturn]] void refuse_fraction(const OpInfo& op, const char* arg, double value,
                                  mt_dtype compute);
inline void check_number(const OpInfo& op, int arg, const Scalar& value, mt_dtype compute) {
  if (value.is_complex()) [[unlikely]] {
    if (compute.code != MT_COMPLEX) refuse_complex_number(op, op.args[arg].name, compute);
    return;
  }
  if (!value.is_float() || compute.code == MT_FLOAT || compute.code == MT_BFLOAT ||
      compute.code == MT_COMPLEX) {
    return;
  }
  const double x = value.to_double();
  if (x != std::trunc(x) || std::isinf(x)) refuse_fraction(op, op.args[arg].name, x, compute);
}

}  // namespace mytorch
