// Counters that are 0 before and after each kernel.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"

namespace mytorch::cuda {

inline constexpr int64_t kCounters = 4096;

// Returns kCounters counters of the context's stream, or of the graph during a capture.
uint32_t* counters_of(mt_ctx& ctx);

}  // namespace mytorch::cuda
