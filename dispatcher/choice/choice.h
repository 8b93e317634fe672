// Decides which kernel runs a call. The kernels of an operator on a device type are tried in this
// order: those of the pinned backend, the fastest according to measurements (mytorch/choice.h),
// then the others by priority. The reference is tried only if pinned.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/runtime/context.h"
#include "dispatcher/table/op.h"
#include "mytorch/abi.h"

namespace mytorch {

struct Backend {
  std::string name;
  std::string version;
  std::string path;  // of its library; "" if registered by a function
  int device_slot = 0;
  mt_backend abi{};
};

struct KernelEntry {
  const Backend* backend;
  mt_kernel_entry abi;
  bool compiled;  // made from the operator's program by mt_backend::compile
  // For a kernel built for an older schema: it knows the fields of the argument struct before this
  // offset.
  uint32_t knows = UINT32_MAX;
  bool unconditional = false;  // takes every call of the operator without conversion

  bool is_reference() const { return (backend->abi.flags & MT_BACKEND_REFERENCE) != 0; }
};

// Returns the backend that an init function filled in. Throws Error, naming it, if it violates the
// contract or if its name is taken.
std::unique_ptr<Backend> checked_backend(const mt_backend& abi, const std::string& path);
// Adds a backend with its device and kernels, for the life of the process. Its operators must be
// registered already.
void add_backend(std::unique_ptr<Backend> backend);
std::vector<const Backend*> backends();

// Returns the kernels of an operator on a device type, in the order in which they are tried.
std::vector<KernelEntry> kernels(const OpEntry& entry, int device_slot);

// The slow path of run_kernel after `ran` returned `status`. The first calls of a process load the
// default backends (or wait for the thread that does) and retry. Throws the kernel's error. Returns
// false if no kernel takes the call.
bool after_failure(const OpEntry& entry, int device_slot, mt_ctx* ctx, const void* args, int status,
                   const BoundKernel* ran);

// Runs the operator's kernel. Returns false if none takes the call; the caller then decomposes it.
// Throws the kernel's Error.
inline bool run_kernel(const OpEntry& entry, int device_slot, mt_ctx* ctx, const void* args) {
  const BoundKernel* slot = entry.slots[device_slot].load(std::memory_order_acquire);
  const int status = slot->run(slot->self, ctx, args);
  release_scratch(ctx);
  if (status == MT_OK) [[likely]]
    return true;
  return after_failure(entry, device_slot, ctx, args, status, slot);
}

// Returns whether every kernel accepts an output that is exactly one of its inputs.
bool takes_alias(const OpEntry& entry, int device_slot);

// Throws the Error for a call that no kernel takes. The message lists the operator, the device, the
// dtypes, every kernel with its reason, and how to allow the fallback.
[[noreturn]] void fail_no_kernel(const OpEntry& entry, int device_slot, const void* args);
// Runs the operator on the CPU with copies of its operands if the user allowed it (allow_fallback
// or MYTORCH_FALLBACK=1), and warns once per operator. Otherwise calls fail_no_kernel.
void run_fallback(const OpEntry& entry, int device_slot, mt_ctx* ctx, const void* args);

// Counts, per operator, the calls of this process that took a slow path.
struct SlowPaths {
  std::string op;
  uint64_t conversions = 0;  // operands copied because the kernel takes only contiguous ones
  uint64_t decomposed = 0;   // calls that decomposed
  uint64_t fallbacks = 0;    // calls that ran on the CPU for another device
};
std::vector<SlowPaths> slow_paths();

}  // namespace mytorch
