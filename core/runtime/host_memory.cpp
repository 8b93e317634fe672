#include "core/runtime/host_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

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

std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return {};  // no such file, or "max"
}

struct Version {
  const char* root;
  const char* limit;
  const char* use;
};

// Returns what is left in a control group and those above it.
uint64_t left_in_group(const Version& version, std::string path) {
  uint64_t left = UINT64_MAX;
  for (;;) {
    const std::string folder = version.root + path;
    const auto limit = number_in(folder + version.limit);
    const auto use = number_in(folder + version.use);
    if (limit.has_value() && use.has_value()) {
      // The system drops cached files if memory is needed.
      const uint64_t files = sum_of(folder + "/memory.stat", {"inactive_file", "active_file"});
      const uint64_t held = *use - std::min(*use, files);
      left = std::min(left, *limit - std::min(*limit, held));
    }
    if (path.empty()) return left;
    path.resize(path.rfind('/'));
  }
}

uint64_t left_in_groups() {
  constexpr Version kOne = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                            "/memory.usage_in_bytes"};
  constexpr Version kTwo = {"/sys/fs/cgroup", "/memory.max", "/memory.current"};
  std::ifstream file("/proc/self/cgroup");
  uint64_t left = UINT64_MAX;
  for (std::string line; std::getline(file, line);) {  // "4:memory:/a/b", "0::/a/b"
    const size_t name = line.find(':') + 1;
    const size_t colon = line.find(':', name);
    if (name == 0 || colon == std::string::npos) continue;
    const std::string controllers = "," + line.substr(name, colon - name) + ",";
    std::string path = line.substr(colon + 1);
    if (path == "/" || path.empty() || path[0] != '/') path.clear();
    if (controllers == ",,") left = std::min(left, left_in_group(kTwo, path));
    if (controllers.find(",memory,") != std::string::npos) {
      left = std::min(left, left_in_group(kOne, path));
    }
  }
  return left;
}

}  // namespace

uint64_t available_host_memory() {
  const uint64_t machine = sum_of("/proc/meminfo", {"MemAvailable:", "SwapFree:"}) * 1024;
  return std::min(machine == 0 ? UINT64_MAX : machine, left_in_groups());
}

}  // namespace mytorch
