// Sums of 16-bit floats.
#pragma once

#include <cstdint>

#include "mytorch/backend/dtype.h"

namespace mytorch::comm_mpi {

// Add `n` elements to others, which they do not overlap.
void add_bfloat16(const sdk::BFloat16* from, sdk::BFloat16* to, int64_t n);
void add_half(const sdk::Half* from, sdk::Half* to, int64_t n);

}  // namespace mytorch::comm_mpi
