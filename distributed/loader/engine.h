// The engines of process groups that are loaded.
#pragma once

#include <string>

#include "mytorch/abi_comm.h"

namespace mytorch::distributed {

struct Engine {
  mt_comm comm{};
  std::string name;
  std::string version;
  std::string device_type;
  std::string path;
};

// Returns the engine of a device type with the highest priority that serves `ranks` ranks as they
// were started, in `one_process` or several, or the one named `name` if it is not empty. Throws
// Error(kUnsupported), with the reason of each engine, if there is none.
const Engine& engine_for(const std::string& device_type, const std::string& name, int rank,
                         int ranks, bool one_process);
// The same, or null.
const Engine* find_engine(const std::string& device_type, const std::string& name, int rank,
                          int ranks, bool one_process, std::string* why);

}  // namespace mytorch::distributed
