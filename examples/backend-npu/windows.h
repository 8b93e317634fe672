// Kernels of convolution, pooling and their gradients.
#pragma once

#include <vector>

#include "mytorch/abi.h"

namespace npu {

void add_window_kernels(std::vector<mt_kernel_entry>& list);

}  // namespace npu
