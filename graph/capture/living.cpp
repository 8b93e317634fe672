#include "graph/capture/living.h"

#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace mytorch::graph {

struct LivingStorages::Set {
  absl::flat_hash_set<const Storage*> storages;
};

namespace {

struct Watched {
  void (*destroy)(Storage* storage);  // its own
  std::weak_ptr<LivingStorages::Set> set;
};

// Memory may be released by any thread.
std::mutex mutex;
absl::flat_hash_map<const Storage*, Watched>& all_watched() {
  static auto* const all = new absl::flat_hash_map<const Storage*, Watched>;
  return *all;
}

void destroy_watched(Storage* storage) {
  Watched watched;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = all_watched().find(storage);
    watched = std::move(found->second);
    all_watched().erase(found);
    if (const auto set = watched.set.lock()) set->storages.erase(storage);
  }
  watched.destroy(storage);
}

}  // namespace

void LivingStorages::add(Storage* storage) {
  if (storage->destroy == destroy_watched) return;
  const std::lock_guard<std::mutex> lock(mutex);
  if (set_ == nullptr) set_ = std::make_shared<Set>();
  set_->storages.insert(storage);
  all_watched()[storage] = {storage->destroy, set_};
  storage->destroy = destroy_watched;
}

void LivingStorages::forget(const Storage* storage) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (set_ != nullptr) set_->storages.erase(storage);
}

absl::flat_hash_set<const Storage*> LivingStorages::alive() const {
  const std::lock_guard<std::mutex> lock(mutex);
  return set_ != nullptr ? set_->storages : absl::flat_hash_set<const Storage*>();
}

}  // namespace mytorch::graph
