// The context with which kernels run on the CPU in this thread.
#pragma once

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"

namespace mytorch {

inline ThreadContext* cpu() {
  return static_cast<ThreadContext*>(context(kCpuSlot, {MT_DEVICE_CPU, 0}));
}

}  // namespace mytorch
