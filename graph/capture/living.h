// Tells which memory that a function allocated while it was recorded is still in use, without
// holding references to it, which would change what operators do.
#pragma once

#include <memory>

#include "absl/container/flat_hash_set.h"
#include "mytorch/storage.h"

namespace mytorch::graph {

class LivingStorages {
 public:
  // Watches a storage that only this thread refers to.
  void add(Storage* storage);
  // No longer watches what the library keeps for its own use.
  void forget(const Storage* storage);
  // Returns whether storages other than these are still alive.
  template <class Known>
  bool any_besides(const Known& is_known) const {
    for (const Storage* storage : alive()) {
      if (!is_known(storage)) return true;
    }
    return false;
  }

  struct Set;

 private:
  absl::flat_hash_set<const Storage*> alive() const;
  std::shared_ptr<Set> set_;
};

}  // namespace mytorch::graph
