// The passes around the library's routines.
#pragma once

#include <cstdint>

#include "backends/cuda/factorization/operands.h"

namespace mytorch::cuda {

// Sets the matrices of a tensor to the identity.
void set_identity(mt_ctx& ctx, const sdk::TensorView& to);

// The matrices of the following functions lie in `columns`; they are real or complex.

// Sets infos of matrices whose factor has a NaN, which the library may take for positive; clears
// the other triangle, and makes what was not factorized NaN.
void finish_cholesky(mt_ctx& ctx, const Columns& factors, bool upper, int32_t* infos,
                     const MatrixFaults& faults);
// Copies the upper triangles to `to`, with zeros below.
void copy_upper(mt_ctx& ctx, const Columns& from, const sdk::TensorView& to);
// Records a fault for each info that is not 0, with `less` subtracted from it.
void note_infos(mt_ctx& ctx, const int32_t* infos, int64_t count, int32_t less,
                const MatrixFaults& faults);
// Which elements count.
enum class Part { kAll, kLower, kUpper };
// Records a fault for each matrix with an element that is not finite, and sets it to zero.
void refuse_not_finite(mt_ctx& ctx, const Columns& matrices, Part part, const MatrixFaults& faults);
// Multiplies the first `count` columns of `vectors` by the factors of sdk::unique_factor, and those
// of `partners`, if there are any, by their conjugates.
void fix_phases(mt_ctx& ctx, const Columns& vectors, int64_t count, const Columns* partners);
// Replaces matrices by their conjugates, which real ones are already.
void conjugate(mt_ctx& ctx, const Columns& matrices);
// Records a fault for each pivot that is not in [1, rows], and sets `to` to the nearest one that
// is. Both are contiguous.
void check_pivots(mt_ctx& ctx, const int32_t* from, int64_t count, int64_t rows, int32_t* to,
                  const Faults& faults);
// Writes the addresses of `count` matrices, `step` bytes apart.
void write_addresses(mt_ctx& ctx, const void* first, int64_t step, int64_t count, void** to);

}  // namespace mytorch::cuda
