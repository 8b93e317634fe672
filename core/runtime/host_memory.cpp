#include "core/runtime/host_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "core/runtime/control_groups.h"

namespace mytorch {
namespace {

// Returns the sum of the numbers that follow these names, each at the begin of a line.
uint64_t sum_of(const std::string& path, std::initializer_list<const char*> names) {
  std::ifstream file(path);
  uint64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (words >> name >> value && std::find(names.begin(), names.end(), name) != names.end()) {
      sum += value;
    }
  }
  return sum;
}

// Returns what is left in a control group and those above it.
uint64_t left_in_groups() {
  uint64_t left = UINT64_MAX;
  ControlGroups().visit("memory", [&](int version, const std::string& folder) {
    const bool second = version == 2;
    const auto limit = number_in(folder + (second ? "/memory.max" : "/memory.limit_in_bytes"));
    const auto use = number_in(folder + (second ? "/memory.current" : "/memory.usage_in_bytes"));
    if (!limit.has_value() || !use.has_value()) return;
    // The system drops cached files if memory is needed.
    const uint64_t files = sum_of(folder + "/memory.stat", {"inactive_file", "active_file"});
    const uint64_t held = *use - std::min(*use, files);
    left = std::min(left, *limit - std::min(*limit, held));
  });
  return left;
}

}  // namespace

uint64_t available_host_memory() {
  const uint64_t machine = sum_of("/proc/meminfo", {"MemAvailable:", "SwapFree:"}) * 1024;
  return std::min(machine == 0 ? UINT64_MAX : machine, left_in_groups());
}

}  // namespace mytorch
