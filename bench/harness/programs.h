// Cases that are not a single operator called by name: direct C++ calls, which measure the
// frontend, and optimizer steps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mytorch/device.h"

namespace mytorch::bench {

// Runs the program n times.
using Loop = std::function<void(int64_t)>;

struct Program {
  std::string name;
  double bytes = 0;  // that each repetition must move
  double flops = 0;
  int calls = 1;  // calls per repetition; results are per call
  std::function<Loop(Device)> make;
};

// Returns the program of this name. Throws Error(kValue) that lists the programs if there is none.
const Program& find_program(const std::string& name);

}  // namespace mytorch::bench
