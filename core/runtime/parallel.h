// mt_ctx::parallel_for.
#pragma once

#include "mytorch/abi.h"

namespace mytorch {

// The special grains are in mytorch/abi_threads.h.
void parallel_for(mt_ctx* ctx, int64_t begin, int64_t end, int64_t grain, mt_range_fn body,
                  void* user);

}  // namespace mytorch
