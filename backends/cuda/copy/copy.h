// Copies on a device, for copy_ and for kernels that need one.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"
#include "mytorch/backend/iterate.h"

namespace mytorch::cuda {

// Elements of `from`, converted and broadcast to the shape of `to`, into `to`. The two are the same
// memory or do not overlap. `from` may be HOST.
void copy(mt_ctx& ctx, const mt_tensor* to, const mt_tensor* from);

// The pieces that it is made of. Loops have `to` first; sizes and strides are in elements.
using CopyLoop = sdk::StridedLoop<2>;

// Of one dtype, which only matters by its size: 1, 2, 4, 8 or 16 bytes.
void move_strided(mt_ctx& ctx, const CopyLoop& loop, int64_t itemsize, void* to, const void* from);
// Through tiles in shared memory, where `to` is contiguous along its last dimension and `from`
// along another one; false where that is not so, or not worth it, or for conversions that are rare.
bool copy_transposed(mt_ctx& ctx, const CopyLoop& loop, mt_dtype to_type, void* to,
                     mt_dtype from_type, const void* from);
void convert_contiguous(mt_ctx& ctx, int64_t n, mt_dtype to_type, void* to, mt_dtype from_type,
                        const void* from);
void convert_strided(mt_ctx& ctx, const CopyLoop& loop, mt_dtype to_type, void* to,
                     mt_dtype from_type, const void* from);

// One element, repeated; `value` points at it in the host's memory.
void fill(mt_ctx& ctx, const mt_tensor* to, const void* value);

}  // namespace mytorch::cuda
