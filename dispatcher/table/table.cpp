#include <mutex>
#include <shared_mutex>

#include "absl/container/flat_hash_map.h"
#include "core/types/errors.h"
#include "dispatcher/table/op.h"

namespace mytorch {
namespace {

// Lookups by name are frequent and share the lock; additions are rare.
struct Index {
  std::shared_mutex mutex;
  absl::flat_hash_map<std::string_view, OpEntry*> by_name;
  absl::flat_hash_map<std::string_view, std::vector<OpEntry*>> by_base;
  absl::flat_hash_map<std::string_view, std::string_view> aliases;
  std::vector<OpEntry*> all;

  void add(OpEntry* entry) {
    by_name.emplace(entry->info->name, entry);
    by_base[entry->info->base].push_back(entry);
    all.push_back(entry);
  }
};

Index& index() {
  static Index* const built = [] {
    auto* made = new Index;
    for (int i = 0; i < kGeneratedOps.size; ++i) made->add(kGeneratedOps.entries[i]);
    for (int i = 0; i < kGeneratedOps.num_aliases; ++i) {
      made->aliases.emplace(kGeneratedOps.aliases[i].alias, kGeneratedOps.aliases[i].name);
    }
    return made;
  }();
  return *built;
}

}  // namespace

OpEntry* find_op(std::string_view full_name) {
  Index& known = index();
  std::shared_lock<std::shared_mutex> lock(known.mutex);
  const auto it = known.by_name.find(full_name);
  return it != known.by_name.end() ? it->second : nullptr;
}

std::vector<OpEntry*> find_overloads(std::string_view base) {
  Index& known = index();
  std::shared_lock<std::shared_mutex> lock(known.mutex);
  auto it = known.by_base.find(base);
  if (it == known.by_base.end()) {
    const auto alias = known.aliases.find(base);
    if (alias != known.aliases.end()) it = known.by_base.find(alias->second);
  }
  return it != known.by_base.end() ? it->second : std::vector<OpEntry*>{};
}

std::vector<OpEntry*> all_ops() {
  Index& known = index();
  std::shared_lock<std::shared_mutex> lock(known.mutex);
  return known.all;
}

void add_op(OpEntry& entry) {
  Index& known = index();
  std::unique_lock<std::shared_mutex> lock(known.mutex);
  if (known.by_name.contains(entry.info->name)) {
    fail(ErrorCode::kValue, "[register_operator] there is an operator ", entry.info->name,
         " already");
  }
  known.add(&entry);
}

void remove_op(OpEntry& entry) {
  Index& known = index();
  std::unique_lock<std::shared_mutex> lock(known.mutex);
  known.by_name.erase(entry.info->name);
  std::erase(known.by_base[entry.info->base], &entry);
  std::erase(known.all, &entry);
}

}  // namespace mytorch
