#include <condition_variable>
#include <map>
#include <mutex>

#include "core/types/errors.h"
#include "mytorch/distributed/store.h"

namespace mytorch::distributed {
namespace {

class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }

  std::optional<std::string> find(const std::string& key) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

  std::string get(const std::string& key, Seconds timeout) override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
      fail(ErrorCode::kIo, "[store] nobody has set '", key, "' within ", timeout.count(),
           " s: check that every rank has started");
    }
    return values_[key];
  }

  int64_t add(const std::string& key, int64_t amount) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return numbers_[key] += amount;
  }

  std::vector<int> lost_ranks() override { return {}; }  // threads do not go alone

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> numbers_;
};

}  // namespace

std::shared_ptr<Store> memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace mytorch::distributed
