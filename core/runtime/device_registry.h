// The device types known to the process: the CPU and those provided by backends. Each type has a
// slot, a small number that indexes per-device tables.
#pragma once

#include <string>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/device.h"
#include "mytorch/thread_state.h"

namespace mytorch {

inline constexpr int kCpuSlot = 0;

struct DeviceType {
  int32_t type = 0;  // a DLPack code or a run-time code
  std::string name;  // "cpu"
  // Null for the CPU, which core implements itself. The functions for streams and events are all
  // set or all null (one ordered queue).
  const mt_device_ops* ops = nullptr;
  void* self = nullptr;
  int count = 0;  // number of devices
};

// Registers a type, or finds it by name if `ops` is null, and returns its slot. Throws
// Error(kDevice) if another backend provides the type already, or if `ops` lacks a required
// function. Copies `ops`; functions beyond its `size` count as null.
int register_device_type(const char* name, const mt_device_ops* ops, void* self);

// Loads the default backends, so that a device can be named before the first operator runs. Set by
// the dispatcher; null if core is used alone.
extern void (*discover_devices)();

// Throws Error(kDevice), listing the known names.
int32_t device_type_from_name(const std::string& name);
std::string device_type_name(int32_t type);
int num_device_types();
const DeviceType& device_type(int slot);
// Returns the slot of a type, which discover_devices may add. Throws Error(kDevice) if no backend
// provides it.
int device_slot(int32_t type);
// Returns the slot of a device. Throws Error(kDevice) if there is no device with its index.
int checked_device_slot(Device device);

}  // namespace mytorch
