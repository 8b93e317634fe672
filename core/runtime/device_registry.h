// Device types known to the process: the CPU, and those that backends brought. A type has a small
// number, its slot, by which tables are indexed.
#pragma once

#include <string>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/device.h"
#include "mytorch/thread_state.h"

namespace mytorch {

inline constexpr int kCpuSlot = 0;

struct DeviceType {
  int32_t type = 0;                    // DLPack's code or a run-time one
  std::string name;                    // "cpu"
  const mt_device_ops* ops = nullptr;  // null for the CPU, which core serves itself. Streams and
                                       // events are all there or all null (one queue, in order)
  void* self = nullptr;
  int count = 0;  // devices present
};

// Adds a type, or, where `ops` is null, finds the one of that name. Returns its slot. Throws
// Error(kDevice) when another backend serves that type already, or `ops` lacks what every device
// needs. Of `ops` a copy is kept; a function that its `size` does not cover counts as null.
int register_device_type(const char* name, const mt_device_ops* ops, void* self);

// Set by the dispatcher: loads the default backends, so that a device can be named before the first
// operator ran. Null when core is used alone.
extern void (*discover_devices)();

int32_t device_type_from_name(const std::string& name);  // throws Error(kDevice), listing the known
std::string device_type_name(int32_t type);
int num_device_types();
const DeviceType& device_type(int slot);
// The slot of a type; throws Error(kDevice) for a type that nobody registered.
int device_slot(int32_t type);
// The same for a device, whose index must exist.
int checked_device_slot(Device device);

}  // namespace mytorch
