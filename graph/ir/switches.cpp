#include "graph/ir/switches.h"

#include <cstdlib>

#include "absl/strings/str_split.h"

namespace mytorch::graph {
namespace {

bool has_name(const char* list, std::string_view name) {
  for (const absl::string_view each : absl::StrSplit(list, ',')) {
    if (std::string_view(each.data(), each.size()) == name) return true;
  }
  return false;
}

}  // namespace

bool is_disabled(std::string_view name) {
  const char* list = std::getenv("MYTORCH_COMPILE_WITHOUT");
  return list != nullptr && has_name(list, name);
}

bool dumps(std::string_view name) {
  const char* list = std::getenv("MYTORCH_COMPILE_DUMP");
  return list != nullptr && (std::string_view(list) == "1" || has_name(list, name));
}

}  // namespace mytorch::graph
