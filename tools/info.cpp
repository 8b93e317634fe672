// `mytorch info`.
#include <iomanip>
#include <iostream>
#include <set>

#include "core/runtime/device_registry.h"
#include "mytorch/abi.h"
#include "mytorch/backends.h"
#include "mytorch/choice.h"
#include "mytorch/threads.h"
#include "mytorch/version.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

void print_choice() {
  const ChoiceTable table = choice_table();
  std::cout << "kernel choice: "
            << (choice() == Choice::kMeasured ? "measured, else by priority" : "by priority")
            << "\n  " << table.path << "\n    " << table.entries << " measured kinds of calls";
  if (table.entries > 0) {
    std::cout << ", hash " << std::hex << std::setw(16) << std::setfill('0') << table.hash
              << std::dec << std::setfill(' ');
  }
  std::cout << "\n";
  if (!table.problem.empty()) std::cout << "    " << table.problem << "\n";
}

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
  print_choice();
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
