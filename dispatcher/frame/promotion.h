// ATen's result type of several operands: tensors with dimensions decide before 0-dim tensors, and
// those before numbers, unless the lesser is of a higher category (bool < integer < float).
#pragma once

#include "mytorch/abi.h"
#include "mytorch/dtype.h"

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

}  // namespace mytorch
