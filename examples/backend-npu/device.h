#pragma once

#include "mytorch/abi.h"

namespace npu {

const mt_device_ops& device_ops();

}  // namespace npu
