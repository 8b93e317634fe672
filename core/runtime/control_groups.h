// The control groups of the process: what a container may use of its machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace mytorch {

// Where the system describes them. Tests have a folder of their own.
struct ControlGroups {
  std::string of_process = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";

  // Calls visit(version, folder) for the folder of the group that limits `controller` ("memory",
  // "cpu") and of those above it, in version 2 and in version 1 of control groups.
  void visit(const std::string& controller,
             const std::function<void(int version, const std::string& folder)>& visit) const;
};

// Returns the number at the begin of a file; nothing if there is no such file, or no number.
std::optional<uint64_t> number_in(const std::string& path);

}  // namespace mytorch
