// The passes of passes.h for complex matrices, and the conjugate.
#pragma once

#include <cstdint>

#include "backends/cuda/factorization/operands.h"
#include "backends/cuda/factorization/passes.h"

namespace mytorch::cuda::complex_passes {

void set_identity(mt_ctx& ctx, const sdk::TensorView& to);
void finish_cholesky(mt_ctx& ctx, const Columns& factors, bool upper, int32_t* infos,
                     const MatrixFaults& faults);
void copy_upper(mt_ctx& ctx, const Columns& from, const sdk::TensorView& to);
void refuse_not_finite(mt_ctx& ctx, const Columns& matrices, Part part, const MatrixFaults& faults);
// Multiplies the first `count` columns of `vectors` by the factors of sdk::unique_factor, and those
// of `partners`, if there are any, by their conjugates.
void fix_phases(mt_ctx& ctx, const Columns& vectors, int64_t count, const Columns* partners);
void conjugate(mt_ctx& ctx, const Columns& matrices);

}  // namespace mytorch::cuda::complex_passes
