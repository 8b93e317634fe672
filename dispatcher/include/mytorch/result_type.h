// The type in which operands of several types are combined.
#pragma once

#include "mytorch/dtype.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Returns the type of `add(a, b)`, for tensors and numbers: promote_types of the operands, but
// tensors with dimensions take precedence over 0-dim tensors, and these over numbers, unless the
// operand of lower precedence has a higher category (bool < integer < float < complex). The type of
// a float16 tensor and 2.5 is float16; that of an int64 tensor and 2.5 is float32. The type of
// values alone is promote_types(a, b).
ScalarType result_type(const Operand& a, const Operand& b);

}  // namespace mytorch
