// `mytorch info`.
#include <iostream>
#include <set>

#include "core/runtime/device_registry.h"
#include "mytorch/abi.h"
#include "mytorch/backends.h"
#include "mytorch/threads.h"
#include "mytorch/version.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

int info() {
  std::cout << "mytorch " << MYTORCH_VERSION_STRING << ", backend contract " << MT_ABI_MAJOR << "."
            << MT_ABI_MINOR << "\nthreads: " << num_threads() << "\n";
  std::vector<BackendInfo> failed;
  std::cout << "backends:\n";
  std::set<std::string> types = {"cpu"};
  for (const BackendInfo& backend : backend_infos()) {
    if (!backend.error.empty()) {
      failed.push_back(backend);
      continue;
    }
    types.insert(backend.device_type);
    std::cout << "  " << backend.name << " " << backend.version << " for " << backend.device_type;
    if (!backend.description.empty()) std::cout << ": " << backend.description;
    std::cout << "\n    " << (backend.path.empty() ? "registered by the program" : backend.path)
              << "\n";
  }
  std::cout << "devices:\n";
  for (const std::string& name : types) {
    const DeviceType& type = device_type(device_slot(device_type_from_name(name)));
    int count = 1;
    if (type.ops != nullptr) count = type.count;
    for (int i = 0; i < count; ++i) {
      std::cout << "  " << Device(device_type_from_name(name), i).str() << "\n";
    }
  }
  if (!failed.empty()) std::cout << "not loaded:\n";
  for (const BackendInfo& backend : failed) {
    std::cout << "  " << backend.path << "\n    " << backend.error << "\n";
  }
  return 0;
}

}  // namespace

Run add_info(CLI::App&) { return info; }

}  // namespace mytorch::tools
