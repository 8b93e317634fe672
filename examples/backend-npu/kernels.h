// The kernels of the primitives. Each kernel copies its arguments and queues its work.
#pragma once

#include <span>

#include "mytorch/abi.h"

namespace npu {

std::span<const mt_kernel_entry> kernels();

}  // namespace npu
