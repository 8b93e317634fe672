// Cases that are more than one operator by name: direct C++ calls whose frontend is what is
// measured, and steps of optimizers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mytorch/device.h"

namespace mytorch::bench {

// Something to repeat: does it so many times.
using Loop = std::function<void(int64_t)>;

struct Program {
  std::string name;
  double bytes = 0;  // that each repetition has to move
  double flops = 0;
  int calls = 1;  // operations in each repetition, of which results give the time of one
  std::function<Loop(Device)> make;  // for a device
};

// Throws Error(kValue) for a name that there is not.
const Program& find_program(const std::string& name);

}  // namespace mytorch::bench
