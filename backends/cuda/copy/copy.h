// Copies on a device, for copy_ and for kernels that need a copy.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"
#include "mytorch/backend/iterate.h"

namespace mytorch::cuda {

// Copies `from`, converted and broadcast to the shape of `to`, into `to`. The two are the same
// memory or do not overlap. `from` may be a HOST operand.
void copy(mt_ctx& ctx, const mt_tensor* to, const mt_tensor* from);

// The kernels behind copy(). Loops have `to` first; sizes and strides are in elements.
using CopyLoop = sdk::StridedLoop<2>;

// Copies elements of 1, 2, 4, 8 or 16 bytes without conversion.
void move_strided(mt_ctx& ctx, const CopyLoop& loop, int64_t itemsize, void* to, const void* from);
// Copies through tiles in shared memory, if `to` is contiguous along its last dimension and `from`
// along another one. Returns false if that is not the case or not worth it, and for rare
// conversions.
bool copy_transposed(mt_ctx& ctx, const CopyLoop& loop, mt_dtype to_type, void* to,
                     mt_dtype from_type, const void* from);
void convert_contiguous(mt_ctx& ctx, int64_t n, mt_dtype to_type, void* to, mt_dtype from_type,
                        const void* from);
void convert_strided(mt_ctx& ctx, const CopyLoop& loop, mt_dtype to_type, void* to,
                     mt_dtype from_type, const void* from);

// Fills `to` with one element; `value` points at it in host memory.
void fill(mt_ctx& ctx, const mt_tensor* to, const void* value);

}  // namespace mytorch::cuda
