// Copies with parameters of their own, and what finds the copies of members.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/module.h"
#include "mytorch/ops/clone.h"
#include "nn/modules/module_copies.h"
#include "nn/modules/names.h"

namespace mytorch::nn {
namespace {

// Makes a copied tensor a leaf that requires grad if the original did.
Tensor as_leaf(Tensor tensor, bool requires_grad) {
  if (requires_grad) tensor.requires_grad_();
  return tensor;
}

// Makes a variable of a copy refer to another tensor. Compiled functions notice assignments to
// variables that refer to what they use, but that of the original stays as it is.
void refer(Tensor& variable, Tensor to) { std::swap(variable, to); }

}  // namespace

Module* Module::Copies::nearest(const Module* owner) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto rank = [owner](const Module* module) {
    const std::ptrdiff_t place = distance(owner, module);
    return std::pair(place < 0, std::abs(place));
  };
  const auto found =
      std::min_element(modules_.begin(), modules_.end(),
                       [&](const Module* a, const Module* b) { return rank(a) < rank(b); });
  return found == modules_.end() ? nullptr : const_cast<Module*>(*found);
}

// A vector that is assigned may have elements of the other object's vector in place of its own.
const std::shared_ptr<Module::Copies>& Module::record(const ChildEntry& entry) {
  const bool moved = entry.assigned != nullptr && entry.shared != nullptr && entry.copies->empty();
  return moved ? entry.assigned : entry.copies;
}

thread_local Module::CloneMemo* Module::CloneMemo::running_ = nullptr;

Module::CloneMemo::CloneMemo() : outer_(std::exchange(running_, this)) {}
Module::CloneMemo::~CloneMemo() { running_ = outer_; }

void Module::CloneMemo::note(Module* copy) {
  for (CloneMemo* memo = running_; memo != nullptr; memo = memo->outer_) {
    memo->log_.push_back(copy);
  }
}

void Module::CloneMemo::forget(const Module* copy) {
  for (CloneMemo* memo = running_; memo != nullptr; memo = memo->outer_) {
    std::erase(memo->log_, copy);
  }
}

std::vector<Module*> Module::CloneMemo::copies(const Module* owner, const ChildEntry& entry) const {
  std::vector<Module*> found;
  const auto& copies = record(entry);
  const auto has_entry = [&](const ChildEntry& other) { return record(other) == copies; };
  auto at = std::find(log_.begin(), log_.end(), owner);
  for (at += at == log_.end() ? 0 : 1; at != log_.end(); ++at) {
    const std::vector<ChildEntry>& children = (*at)->children_;
    if ((*at)->copies_ == copies) {
      found.push_back(*at);
    } else if (std::any_of(children.begin(), children.end(), has_entry)) {
      break;  // the copies that follow are those of this module
    }
  }
  return found;
}

Module::Cloning::Cloning() : memo_(new CloneMemo) {}
Module::Cloning::~Cloning() = default;

void Module::Cloning::finish(Module& copy, const Extent& extent) const {
  NoGradGuard no_grad;
  copy.unshare(*memo_, extent);
}

bool Module::Extent::contains(const void* place) const {
  const std::ptrdiff_t offset = distance(begin, place);
  return offset >= 0 && offset < static_cast<std::ptrdiff_t>(bytes);
}

// A tensor registered by value is also a member, which no entry leads to. It is found in the object
// by its identity.
void Module::replace_members(const Extent& extent, const Tensor& from, const Tensor& to) {
  static_assert(sizeof(Tensor) == sizeof(void*));
  for (size_t offset = 0; offset + sizeof(Tensor) <= extent.bytes; offset += alignof(Tensor)) {
    const auto place = static_cast<std::ptrdiff_t>(offset);
    const void* word = &at_distance<const char>(extent.begin, place);
    if (std::memcmp(word, static_cast<const void*>(&from), sizeof(Tensor)) == 0)
      refer(at_distance<Tensor>(extent.begin, place), to);
  }
}

// `extent` is the object that this module is a part of.
void Module::unshare(CloneMemo& memo, const Extent& extent) {
  if (!memo.done.insert(this).second) return;
  for (const TensorEntry& entry : tensors_) {
    Tensor& tensor = resolve(entry);
    if (!tensor.defined()) continue;
    const Tensor original = tensor;
    const auto [at, is_new] = memo.tensors.try_emplace(tensor.impl());
    if (is_new) {
      const bool requires_grad = tensor.requires_grad() && !entry.computed;
      at->second = as_leaf(mytorch::clone(tensor).detach(), requires_grad);
    }
    refer(tensor, at->second);
    if (entry.held) replace_members(extent, original, tensor);
  }
  for (ChildEntry& entry : children_) unshare_child(memo, extent, entry);
}

void Module::unshare_child(CloneMemo& memo, const Extent& extent, ChildEntry& entry) {
  const auto copied = [&](const Module& module) {
    Copied copy = entry.copy != nullptr ? entry.copy(module) : Copied();
    if (copy.module == nullptr) {
      fail(ErrorCode::kUnsupported, "[clone] ", class_name(module), " '", entry.name,
           "' cannot be copied: register it as a shared_ptr to its own, copyable class");
    }
    return copy;
  };
  Module& child = resolve(entry);
  const std::vector<Module*> copies =
      entry.copies != nullptr ? memo.copies(this, entry) : std::vector<Module*>();
  const bool is_member =
      entry.shared == nullptr || (entry.copies != nullptr && extent.contains(&child));
  if (is_member) {
    entry.place = distance(this, &child);
    entry.shared = nullptr;
    child.unshare(memo, extent);
  } else if (!copies.empty()) {
    entry.copies = std::make_shared<Copies>();
    entry.assigned = nullptr;
  } else if (&child != entry.shared.get()) {
    fail(ErrorCode::kUnsupported, "[clone] ", class_name(*this), " registered '", entry.name,
         "' by value, but the module in use is not copied with the object: hold modules in a "
         "member, a std::vector, a ModuleList or a registered shared_ptr");
  } else {
    const auto [at, is_new] = memo.modules.try_emplace(entry.shared.get());
    if (is_new) {
      const Copied copy = copied(*entry.shared);
      at->second = copy.module;
      if (entry.copies != nullptr) start_copies(*copy.module);
      copy.module->unshare(memo, copy.extent);
    }
    entry.shared = at->second;
    if (entry.copies != nullptr) entry.copies = entry.shared->copies_;
    entry.assigned = nullptr;
    return;
  }
  // Copies of the registered module: members, or elements of a vector, which lie elsewhere.
  for (Module* copy : copies) {
    if (extent.contains(copy)) {
      copy->unshare(memo, extent);
    } else if (entry.copy != nullptr) {
      const Copied measured = copied(*copy);
      const std::ptrdiff_t begin = distance(measured.module.get(), measured.extent.begin);
      copy->unshare(memo, {&at_distance<const char>(copy, begin), measured.extent.bytes});
    }
    if (is_member) continue;
    copy->copies_->remove(copy);
    copy->copies_ = entry.copies;
    entry.copies->add(copy);
  }
  if (is_member) return;
  entry.shared = copied(*copies[0]).module;
  entry.copies->remove(entry.shared.get());
}

}  // namespace mytorch::nn
