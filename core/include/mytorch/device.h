// The device that holds a tensor.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "mytorch/abi.h"

namespace mytorch {

// `type` is a DLPack device type, or one that the host allocated for a backend's own kind of
// device.
struct Device {
  int32_t type = MT_DEVICE_CPU;
  int32_t index = 0;

  constexpr Device() = default;
  constexpr Device(int32_t type, int32_t index) : type(type), index(index) {}
  // The device of the same type with another index: Device(kCUDA, 1).
  constexpr Device(Device type, int32_t index) : Device(type.type, index) {}
  // Parses "cpu", "cuda", "cuda:1", or the name of any device that a loaded backend provides.
  // Throws Error(kDevice) for an unknown name.
  Device(const char* name);  // NOLINT: implicit, so that `x.to("cuda")` reads well
  Device(const std::string& name) : Device(name.c_str()) {}  // NOLINT

  constexpr bool is_cpu() const { return type == MT_DEVICE_CPU; }
  constexpr bool is_cuda() const { return type == MT_DEVICE_CUDA; }
  constexpr bool has_index() const { return !is_cpu(); }
  bool operator==(const Device&) const = default;
  std::string str() const;  // for example "cpu" or "cuda:0"
};

inline constexpr Device kCPU{MT_DEVICE_CPU, 0};
inline constexpr Device kCUDA{MT_DEVICE_CUDA, 0};

std::ostream& operator<<(std::ostream& out, const Device& device);  // as str()

// Returns the number of devices of a type; 0 if no loaded backend serves it.
int device_count(int32_t type);

}  // namespace mytorch
