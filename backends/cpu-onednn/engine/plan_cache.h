// Plans by what they are for. A plan takes about a millisecond to make, most of it oneDNN compiling
// code, and some ten kilobytes; the cache holds a bounded number, and drops the one used longest
// ago. Threads ask it only for what is not among the calls they have bound themselves (run.h).
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "backends/cpu-onednn/engine/key.h"
#include "backends/cpu-onednn/engine/plan.h"

namespace mytorch::onednn {

// A reference to something that makes a plan: a std::function would be allocated with each call.
class Make {
 public:
  template <class F>
  Make(const F& make)  // NOLINT: any such function is meant to convert
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

  // Makes the plan where it is not there; NULL where make() declines, which is remembered too. Two
  // threads that miss at once both make it, and one plan stays.
  std::shared_ptr<const Plan> find_or_make(const Key& key, Make make);

  size_t size() const;

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const Plan> plan;
  };
  using Entries = std::list<Entry>;  // the last used first
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

// Of the process.
PlanCache& plan_cache();

}  // namespace mytorch::onednn
