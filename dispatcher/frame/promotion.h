// The types of a call. ATen's result type of several operands: tensors with dimensions decide
// before 0-dim tensors, and those before numbers, unless the lesser is of a higher category (bool <
// integer < float).
#pragma once

#include <cmath>

#include "dispatcher/table/op.h"
#include "mytorch/abi.h"
#include "mytorch/dtype.h"
#include "mytorch/scalar.h"

namespace mytorch {

class ResultType {
 public:
  // A HOST operand without storage is a number; one with storage is a 0-dim tensor of the CPU.
  void add(const mt_tensor* operand);
  bool empty() const { return !has_[0] && !has_[1] && !has_[2]; }
  ScalarType get() const;

 private:
  ScalarType types_[3] = {};  // of dimensioned tensors, 0-dim tensors, numbers
  bool has_[3] = {};
};

// Throws Error(kType) where an operand, in the order of the tensor arguments, is of a type that its
// record excludes.
void check_types(const OpInfo& op, const mt_tensor* const* operands);

// A number that takes no part in promotion is not cut off: throws Error(kType) for one with a
// fraction where the computation is in integers.
[[noreturn]] void refuse_fraction(const OpInfo& op, const char* arg, double value,
                                  mt_dtype compute);
inline void check_number(const OpInfo& op, int arg, const Scalar& value, mt_dtype compute) {
  if (!value.is_float() || compute.code == MT_FLOAT || compute.code == MT_BFLOAT) return;
  const double x = value.to_double();
  if (x != std::trunc(x) || std::isinf(x)) refuse_fraction(op, op.args[arg].name, x, compute);
}

}  // namespace mytorch
