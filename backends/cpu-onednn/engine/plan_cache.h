// A cache of plans. Making a plan takes about a millisecond, mostly to compile code, and tens of
// kilobytes. The cache is bounded and evicts the least recently used plan. Threads consult it only
// for calls that they have not bound themselves (run.h).
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "backends/cpu-onednn/engine/key.h"
#include "backends/cpu-onednn/engine/plan.h"

namespace mytorch::onednn {

// A reference to a function that makes a plan; a std::function would allocate in each call.
class Make {
 public:
  template <class F>
  Make(const F& make)  // NOLINT: implicit
      : object_(&make),
        call_([](const void* object) { return (*static_cast<const F*>(object))(); }) {}
  Plan operator()() const { return call_(object_); }

 private:
  const void* object_;
  Plan (*call_)(const void*);
};

class PlanCache {
 public:
  explicit PlanCache(size_t most) : most_(most) {}

  // Returns the plan for `key`, and makes it if it is missing. Returns NULL if make() declines,
  // which is also cached. If two threads miss at the same time, both make the plan, and one is
  // kept.
  std::shared_ptr<const Plan> find_or_make(const Key& key, Make make);

  size_t size() const;

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const Plan> plan;
  };
  using Entries = std::list<Entry>;  // most recently used first
  struct Hash {
    size_t operator()(const Key* key) const { return key->hash(); }
  };
  struct Equal {
    bool operator()(const Key* a, const Key* b) const { return *a == *b; }
  };

  const size_t most_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<const Key*, Entries::iterator, Hash, Equal> index_;
};

// The cache of this process.
PlanCache& plan_cache();

}  // namespace mytorch::onednn
