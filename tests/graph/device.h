// The device on which tests of compiled functions run: MYTORCH_TEST_DEVICE, or the CPU.
#pragma once

#include <cstdlib>

#include "mytorch/device.h"

namespace mytorch {

inline Device test_device() {
  const char* name = std::getenv("MYTORCH_TEST_DEVICE");
  return Device(name != nullptr ? name : "cpu");
}

}  // namespace mytorch
