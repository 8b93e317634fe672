// Comparison of tensors bit for bit, wherever they are.
#pragma once

#include "mytorch/tensor.h"

namespace mytorch::graph {

// Whether two tensors have the same type, shape and bits, or are both undefined. Any two NaNs are
// the same: their sign and payload depend on which operand of an addition comes first, and so on
// how a compiler orders it in a vector and in what is left over.
bool same_bits(const Tensor& a, const Tensor& b);

// Returns a copy on the CPU, contiguous, whose NaNs all have the same bits.
Tensor with_one_nan(const Tensor& tensor);

}  // namespace mytorch::graph
