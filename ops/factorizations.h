// Checks of the arguments of factorizations.
#pragma once

#include "mytorch/tensor.h"

namespace mytorch {

// Throws Error(kType) unless the elements are float32 or float64, and Error(kShape) unless there
// are two dimensions; the second also unless the last two are equal.
void check_factorizable(const Tensor& x, const char* name, const char* op);
void check_square(const Tensor& x, const char* name, const char* op);

}  // namespace mytorch
