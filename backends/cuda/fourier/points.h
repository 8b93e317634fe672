// Copies of the points of transforms, real or complex.
#pragma once

#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

// Copies points and multiplies them by `factor`. The operands have one shape and one type, or real
// points become complex ones. `to` may be `from`.
void copy_points(mt_ctx& ctx, const sdk::TensorView& from, const sdk::TensorView& to,
                 double factor);
// Removes the imaginary parts along a dimension of complex `x` at its first element, and if `last`
// at its last: the transform to real points has none there.
void make_ends_real(mt_ctx& ctx, const sdk::TensorView& x, int dim, bool last);

}  // namespace mytorch::cuda
