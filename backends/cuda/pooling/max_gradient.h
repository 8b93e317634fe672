// The gradient of max pooling.
#pragma once

#include "backends/cuda/registry.h"

namespace mytorch::cuda {

void register_max_pool_gradient(KernelEntries& kernels);

}  // namespace mytorch::cuda
