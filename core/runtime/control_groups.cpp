#include "core/runtime/control_groups.h"

#include <fstream>

namespace mytorch {

void ControlGroups::visit(
    const std::string& controller,
    const std::function<void(int version, const std::string& folder)>& visit) const {
  std::ifstream file(of_process);
  for (std::string line; std::getline(file, line);) {  // "4:cpu,cpuacct:/a/b", "0::/a/b"
    const size_t name = line.find(':') + 1;
    const size_t colon = line.find(':', name);
    if (name == 0 || colon == std::string::npos) continue;
    const std::string list = line.substr(name, colon - name);
    const bool second = list.empty();
    if (!second && ("," + list + ",").find("," + controller + ",") == std::string::npos) continue;
    // Controllers that are mounted together have links of their own names.
    const std::string top = second ? root : root + "/" + controller;
    std::string path = line.substr(colon + 1);
    if (path == "/" || path.empty() || path[0] != '/') path.clear();
    for (;;) {
      visit(second ? 2 : 1, top + path);
      if (path.empty()) break;
      path.resize(path.rfind('/'));
    }
  }
}

std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return {};  // no such file, or "max"
}

}  // namespace mytorch
