#include <algorithm>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "dispatcher/table/op.h"

namespace mytorch {
namespace {

struct Index {
  absl::flat_hash_map<std::string_view, OpEntry*> by_name;
  absl::flat_hash_map<std::string_view, std::vector<OpEntry*>> by_base;
};

const Index& index() {
  static const Index* const built = [] {
    auto* made = new Index;
    for (int i = 0; i < kGeneratedOps.size; ++i) {
      OpEntry* entry = kGeneratedOps.entries[i];
      made->by_name.emplace(entry->info->name, entry);
      made->by_base[entry->info->base].push_back(entry);
    }
    return made;
  }();
  return *built;
}

}  // namespace

OpEntry* find_op(std::string_view full_name) {
  const auto it = index().by_name.find(full_name);
  return it != index().by_name.end() ? it->second : nullptr;
}

std::vector<OpEntry*> find_overloads(std::string_view base) {
  const auto it = index().by_base.find(base);
  return it != index().by_base.end() ? it->second : std::vector<OpEntry*>{};
}

std::vector<OpEntry*> all_ops() {
  return {kGeneratedOps.entries, kGeneratedOps.entries + kGeneratedOps.size};
}

}  // namespace mytorch
