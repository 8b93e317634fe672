// Counters that kernels find at 0 and leave at 0.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"

namespace mytorch::cuda {

inline constexpr int64_t kCounters = 4096;

// Those of the context's stream; while it is recorded, the graph's own.
uint32_t* counters_of(mt_ctx& ctx);

}  // namespace mytorch::cuda
