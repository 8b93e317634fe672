// Additions by index along lines, in order: for each line, for k in order, acc[index[k]] += src[k].
#pragma once

#include "backends/cuda/runtime/faults.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {

// `acc` has the type of `src`, or float32 where that is a 16-bit float; its shape is that of the
// index but along `dim`, in which the index may be smaller too.
void add_along(mt_ctx& ctx, const sdk::TensorView& index, const sdk::TensorView& src,
               const sdk::TensorView& acc, int dim, const Faults& faults);

}  // namespace mytorch::cuda
