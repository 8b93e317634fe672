// The chip's own operators, which are not in ops.yaml.
#pragma once

#include <span>
#include <vector>

#include "mytorch/abi.h"

namespace npu {

std::span<const mt_operator> operators();
void add_operator_kernels(std::vector<mt_kernel_entry>& kernels);

}  // namespace npu
