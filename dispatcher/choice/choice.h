// Which kernel a call runs. A backend's kernels for an op on a device type are asked in order:
// the pinned backend's first, then what was measured to be the fastest (mytorch/choice.h), then by
// priority. The reference is asked only when pinned.
#pragma once

#include <string>
#include <vector>

#include "core/runtime/context.h"
#include "dispatcher/table/op.h"
#include "mytorch/abi.h"

namespace mytorch {

struct Backend {
  std::string name;
  std::string version;
  std::string path;  // of its library; "" when registered by a function
  int device_slot = 0;
  mt_backend abi{};
};

struct KernelEntry {
  const Backend* backend;
  mt_kernel_entry abi;
  bool compiled;  // made from the op's program by mt_backend::compile
  // Of the argument struct it knows the fields before this offset (it was built for an older
  // schema).
  uint32_t knows = UINT32_MAX;
  bool unconditional = false;  // takes every call of the op as it is

  bool is_reference() const { return (backend->abi.flags & MT_BACKEND_REFERENCE) != 0; }
};

// Registers what a backend's init filled in; throws Error naming the backend on a bad contract.
const Backend& add_backend(const mt_backend& abi, const std::string& path);
std::vector<const Backend*> backends();

// The kernels of an op on a device type, in the order in which they are asked.
std::vector<KernelEntry> kernels(const OpEntry& entry, int device_slot);

// The slow end of run_kernel, after `ran` gave `status`: the first calls of a process load the
// default backends (or wait for the thread that does) and try again; a kernel's error is thrown;
// false when no kernel takes the call.
bool after_failure(const OpEntry& entry, int device_slot, mt_ctx* ctx, const void* args, int status,
                   const BoundKernel* ran);

// Runs the op's kernel. False when there is none for this call: the caller then decomposes the op.
// Throws the kernel's Error.
inline bool run_kernel(const OpEntry& entry, int device_slot, mt_ctx* ctx, const void* args) {
  const BoundKernel* slot = entry.slots[device_slot].load(std::memory_order_acquire);
  const int status = slot->run(slot->self, ctx, args);
  release_scratch(ctx);
  if (status == MT_OK) [[likely]]
    return true;
  return after_failure(entry, device_slot, ctx, args, status, slot);
}

// Whether every kernel takes an output that is exactly one of its inputs.
bool takes_alias(const OpEntry& entry, int device_slot);

// Throws the Error of an op without a kernel for this call: op, device, dtypes, every kernel
// with its reason, and how to allow the fallback.
[[noreturn]] void fail_no_kernel(const OpEntry& entry, int device_slot, const void* args);
// Runs the op on the CPU with copies of its operands, where the user allowed it (allow_fallback, or
// MYTORCH_FALLBACK=1); warns once per op. Otherwise, as fail_no_kernel.
void run_fallback(const OpEntry& entry, int device_slot, mt_ctx* ctx, const void* args);

// How often calls went a slow way, since the process began, by op.
struct SlowPaths {
  std::string op;
  uint64_t conversions = 0;  // operands copied because the kernel takes only contiguous ones
  uint64_t decomposed = 0;   // run as the ops that its meaning names
  uint64_t fallbacks = 0;    // run on the CPU for another device
};
std::vector<SlowPaths> slow_paths();

}  // namespace mytorch
