// The distance of a member from its module, by which it is found, and the copies of modules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_set>
#include <vector>

#include "mytorch/nn/module.h"

namespace mytorch::nn {

// Computed with integers, because a member of a derived class lies outside its Module base.
inline std::ptrdiff_t distance(const void* from, const void* to) {
  return static_cast<std::ptrdiff_t>(reinterpret_cast<uintptr_t>(to) -
                                     reinterpret_cast<uintptr_t>(from));
}

template <class T>
T& at_distance(const void* from, std::ptrdiff_t place) {
  return *reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(place));
}

class Module::Copies {
 public:
  void add(const Module* module) {
    std::lock_guard<std::mutex> lock(mutex_);
    modules_.insert(module);
  }
  void remove(const Module* module) {
    std::lock_guard<std::mutex> lock(mutex_);
    modules_.erase(module);
  }
  bool empty() {
    std::lock_guard<std::mutex> lock(mutex_);
    return modules_.empty();
  }
  bool contains(const Module* module) {
    std::lock_guard<std::mutex> lock(mutex_);
    return modules_.count(module) != 0;
  }
  // Returns the copy that is registered in `owner` by value, or null. Members lie after their
  // owner, so if a copy is a member, so is the nearest copy behind the owner.
  Module* nearest(const Module* owner);

 private:
  std::mutex mutex_;
  std::unordered_set<const Module*> modules_;
};

// The log has the modules in the order in which they were copied: a module, then its members.
class Module::CloneMemo {
 public:
  CloneMemo();
  ~CloneMemo();
  CloneMemo(const CloneMemo&) = delete;
  CloneMemo& operator=(const CloneMemo&) = delete;

  static void note(Module* copy);
  static void forget(const Module* copy);

  // Returns the copies of the module registered as `entry` that were made with `owner`.
  std::vector<Module*> copies(const Module* owner, const ChildEntry& entry) const;

  std::map<const void*, Tensor> tensors;
  std::map<const void*, std::shared_ptr<Module>> modules;
  std::set<const Module*> done;

 private:
  CloneMemo* outer_;
  std::vector<Module*> log_;
  static thread_local CloneMemo* running_;
};

}  // namespace mytorch::nn
