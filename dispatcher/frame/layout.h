// Results that follow the layout of an argument: what `layout: follow(x)` of a record means.
#pragma once

#include "core/tensor/spec.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Whether a tensor of 4 or 5 dimensions has the channels, dimension 1, side by side and the others
// in row-major order around them. Told by the strides alone, also those of dimensions of size 1, so
// that an image of one channel can be either (ATen's suggest_memory_format).
bool is_channels_last(IntList sizes, IntList strides);
inline bool is_channels_last(const Tensor& x) {
  return x.defined() && is_channels_last(x.sizes(), x.strides());
}

// Channels-last where that is asked for and the result has 4 or 5 dimensions; else as `spec` says.
Tensor make_output(const TensorSpec& spec, bool channels_last);

}  // namespace mytorch
