// One block of host memory for everything that a new tensor needs.
#pragma once

#include "mytorch/storage.h"

namespace mytorch {

// A Storage, `between` bytes for the caller directly behind it (the tensor's header), and behind
// those, 64-byte aligned, `bytes` of data: all freed together, when the storage's last reference
// goes. Throws Error(kOutOfMemory).
Storage* allocate_cpu_block(Device device, size_t between, uint64_t bytes);

}  // namespace mytorch
