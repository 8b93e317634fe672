#include "backends/cpu-onednn/engine/plan_cache.h"

namespace mytorch::onednn {
namespace {

// Returns a plan, or NULL if oneDNN does not support the call. That is not an error: another
// backend may.
std::shared_ptr<const Plan> made(Make make) {
  try {
    return std::make_shared<const Plan>(make());
  } catch (const sdk::Declined&) {
    return nullptr;
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments) {
      return nullptr;
    }
    throw;
  }
}

}  // namespace

PlanCache& plan_cache() {
  static auto* const instance = new PlanCache(1024);
  return *instance;
}

std::shared_ptr<const Plan> PlanCache::find_or_make(const Key& key, Make make) {
  const auto find = [&]() -> const Entry* {
    const auto found = index_.find(&key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &*found->second;
  };
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const Entry* entry = find()) return entry->plan;
  }
  std::shared_ptr<const Plan> plan = made(make);
  std::lock_guard<std::mutex> lock(mutex_);
  if (const Entry* entry = find()) return entry->plan;
  if (entries_.size() >= most_) {
    index_.erase(&entries_.back().key);
    entries_.pop_back();
  }
  entries_.push_front({key, plan});
  index_.emplace(&entries_.front().key, entries_.begin());
  return plan;
}

size_t PlanCache::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return entries_.size();
}

}  // namespace mytorch::onednn
