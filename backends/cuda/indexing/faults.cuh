// The index check of kernels here.
#pragma once

#include "backends/cuda/runtime/faults.h"

namespace mytorch::cuda {

// `site` is that of the operator, fault_site("gather").
inline Faults faults_of(const mt_ctx& ctx, uint32_t site, int64_t dim, int64_t size) {
  return {fault_of(ctx), site, static_cast<uint32_t>(dim), size};
}

}  // namespace mytorch::cuda
