// What the contract asks of a device: memory, copies, streams, events (mt_device_ops).
#pragma once

#include "mytorch/abi.h"

namespace mytorch::cuda {

const mt_device_ops& device_ops();

// For `mytorch info`: the devices, driver, CUDA and cuDNN.
const char* describe(void* self);

}  // namespace mytorch::cuda
