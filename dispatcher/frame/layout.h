// Results that follow the layout of an argument, as `layout: follow(x)` of a record requests.
#pragma once

#include "core/tensor/spec.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Returns whether a tensor of 4 or 5 dimensions is channels-last: dimension 1 varies fastest, the
// others follow in row-major order. The strides decide alone, including those of dimensions of size
// 1, so that a tensor with one channel can have either layout (ATen's suggest_memory_format).
bool is_channels_last(IntList sizes, IntList strides);
inline bool is_channels_last(const Tensor& x) {
  return x.defined() && is_channels_last(x.sizes(), x.strides());
}

// Makes the result channels-last if `channels_last` is set and it has 4 or 5 dimensions; else as
// `spec` describes it.
Tensor make_output(const TensorSpec& spec, bool channels_last);

}  // namespace mytorch
