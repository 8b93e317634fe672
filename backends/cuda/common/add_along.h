// Deterministic additions by index along lines: for each line, for k in order, acc[index[k]] +=
// src[k].
#pragma once

#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

// `acc` has the type of `src`, or float32 if `src` is a 16-bit float. Its shape is that of `index`
// except along `dim`; `index` may be smaller than `src` there. Records a fault for an index out of
// range.
void add_along(mt_ctx& ctx, const sdk::TensorView& index, const sdk::TensorView& src,
               const sdk::TensorView& acc, int dim, const Faults& faults);

}  // namespace mytorch::cuda
