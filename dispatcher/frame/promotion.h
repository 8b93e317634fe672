// The types of a call. The result type of several operands is ATen's: tensors with dimensions take
// precedence over 0-dim tensors, and these over numbers, unless the operand of lower precedence has
// a higher category (bool < integer < float < complex).
#pragma once

#include "dispatcher/table/op.h"
#include "mytorch/abi.h"
#include "mytorch/dtype.h"
#include "mytorch/scalar.h"

namespace mytorch {

class ResultType {
 public:
  // A HOST operand without storage is a number; one with storage is a 0-dim CPU tensor.
  void add(const mt_tensor* operand);
  // Adds a type of rank 0 (tensors with dimensions), 1 (0-dim tensors) or 2 (numbers).
  void add(int rank, ScalarType type);
  bool empty() const { return !has_[0] && !has_[1] && !has_[2]; }
  ScalarType get() const;

 private:
  ScalarType types_[3] = {};  // of dimensioned tensors, 0-dim tensors, numbers
  bool has_[3] = {};
};

// Throws Error(kType) if an operand has a type that the record excludes. `operands` is in the order
// of the tensor arguments.
void check_types(const OpInfo& op, const mt_tensor* const* operands);

// Throws Error(kType): the operator takes no complex numbers.
[[noreturn]] void refuse_complex(const OpInfo& op, const char* name, ScalarType type);

// Returns whether a negative number stands for its low bits in an unsigned type, as in x + -1: the
// operator adds, subtracts, multiplies or combines bits, and does nothing else.
bool wraps(const OpInfo& op, ScalarType compute, int64_t value);

// Throws Error for a complex number if the computation is not complex, and, if it is in integers,
// for one that has a fraction or is not a value of their type: numbers that do not promote are
// neither truncated nor wrapped.
void check_whole_number(const OpInfo& op, int arg, const Scalar& value, mt_dtype compute);
inline void check_number(const OpInfo& op, int arg, const Scalar& value, mt_dtype compute) {
  const bool floats = compute.code == MT_FLOAT || compute.code == MT_BFLOAT;
  if (compute.code == MT_COMPLEX || (floats && !value.is_complex())) [[likely]]
    return;
  check_whole_number(op, arg, value, compute);
}

}  // namespace mytorch
