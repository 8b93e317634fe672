#include "mytorch/device.h"

#include <cstdlib>
#include <cstring>

#include "core/runtime/deferred_memory.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"

namespace mytorch {

thread_local constinit Device detail::place_of_new __attribute__((tls_model("initial-exec")));

Device::Device(const char* name) {
  const char* colon = std::strchr(name, ':');
  const std::string kind = colon != nullptr ? std::string(name, colon) : std::string(name);
  type = device_type_from_name(kind);
  index = 0;
  if (colon == nullptr) return;
  char* end = nullptr;
  const long value = std::strtol(colon + 1, &end, 10);
  if (end == colon + 1 || *end != '\0' || value < 0 || value > 1023) {
    fail(ErrorCode::kDevice, "[device] '", name, "' has no device number after the colon: write '",
         kind, ":0'");
  }
  index = static_cast<int32_t>(value);
}

std::string Device::str() const {
  if (type == MT_DEVICE_CPU && index == 0) return "cpu";
  return absl::StrCat(device_type_name(type), ":", index);
}

}  // namespace mytorch
