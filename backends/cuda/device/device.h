// The device functions of the contract (mt_device_ops): memory, copies, streams, events.
#pragma once

#include "mytorch/abi.h"

namespace mytorch::cuda {

const mt_device_ops& device_ops();

// Describes the devices, driver, CUDA and cuDNN for `mytorch info`.
const char* describe(void* self);

}  // namespace mytorch::cuda
