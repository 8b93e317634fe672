// The context with which kernels run on the CPU in this thread.
#pragma once

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"

namespace mytorch {

inline Context* cpu() { return static_cast<Context*>(context(kCpuSlot, {MT_DEVICE_CPU, 0})); }

}  // namespace mytorch
