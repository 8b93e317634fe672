// Registration of members, and the way from an entry to its member.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/nn/module.h"
#include "nn/modules/module_copies.h"
#include "nn/modules/names.h"

namespace mytorch::nn {

void Module::check_name(const std::string& name) const {
  if (name.empty() || name.find('.') != std::string::npos) {
    fail(ErrorCode::kValue, "[", class_name(*this), "] a member cannot be named '", name,
         "': give a name that is not empty and has no '.'");
  }
  const auto named = [&](const auto& entry) { return entry.name == name; };
  if (std::any_of(tensors_.begin(), tensors_.end(), named) ||
      std::any_of(children_.begin(), children_.end(), named)) {
    fail(ErrorCode::kValue, "[", class_name(*this), "] already has a member named '", name,
         "': give each member a name of its own");
  }
}

void Module::fail_outside(const std::string& name) const {
  fail(ErrorCode::kValue, "[", class_name(*this), "] '", name,
       "' is not a member of the object: declare it in the class, or hold modules in a ModuleList "
       "or a shared_ptr");
}

// While a constructor runs, the size of the object is not known yet, but no object is this large.
bool Module::is_near(const void* member) const {
  constexpr std::ptrdiff_t kLargest = 1 << 20;
  return std::abs(distance(this, member)) <= kLargest;
}

void Module::check_within(const void* object, size_t bytes) const {
  const std::ptrdiff_t start = distance(this, object);
  const auto check = [&](const auto& entry) {
    if (entry.place < start || entry.place >= start + static_cast<std::ptrdiff_t>(bytes)) {
      fail_outside(entry.name);
    }
  };
  for (const TensorEntry& entry : tensors_) {
    if (!entry.held) check(entry);
  }
  for (const ChildEntry& entry : children_) {
    if (entry.shared == nullptr) check(entry);
  }
}

Module::RegisteredTensor Module::register_parameter(std::string name, Tensor& member) {
  RegisteredTensor registered = add_tensor_at(std::move(name), member, Role::kParameter);
  if (member.defined()) member.requires_grad_();
  return registered;
}

Module::RegisteredTensor Module::add_tensor_at(std::string name, Tensor& tensor, Role role) {
  if (is_near(&tensor)) {
    check_name(name);
    note_change();
    tensors_.push_back({std::move(name), distance(this, &tensor), role});
  } else {
    add_tensor(std::move(name), tensor, role);
  }
  return RegisteredTensor(*this, tensors_.size() - 1);
}

Module::RegisteredTensor::operator Tensor&() && {
  TensorEntry& entry = module_.tensors_[index_];
  if (!entry.held) {
    entry.tensor = module_.resolve(entry);
    entry.held = true;
    entry.place = 0;
  }
  return entry.tensor;
}

Module::TensorEntry& Module::add_tensor(std::string name, Tensor value, Role role) {
  check_name(name);
  note_change();
  tensors_.push_back({.name = std::move(name),
                      .place = 0,
                      .role = role,
                      .held = true,
                      .tensor = std::move(value)});
  return tensors_.back();
}

void Module::hold_parameter(std::string name, Tensor parameter) {
  if (parameter.defined()) parameter.requires_grad_();
  add_tensor(std::move(name), std::move(parameter), Role::kParameter);
}

Tensor Module::register_parameter(std::string name, const Tensor& value, bool requires_grad) {
  if (value.defined()) value.requires_grad_(requires_grad);
  return add_tensor(std::move(name), value, Role::kParameter).tensor;
}

Tensor Module::register_buffer(std::string name, const Tensor& value, bool persistent) {
  const Role role = persistent ? Role::kBuffer : Role::kTransientBuffer;
  return add_tensor(std::move(name), value, role).tensor;
}

Module::RegisteredTensor Module::register_buffer(std::string name, Tensor& member,
                                                 bool persistent) {
  return add_tensor_at(std::move(name), member,
                       persistent ? Role::kBuffer : Role::kTransientBuffer);
}

void Module::add_member(std::string name, Module& member) {
  check_name(name);
  if (&member == this) {
    fail(ErrorCode::kValue, "[", class_name(*this), "] cannot contain itself as '", name, "'");
  }
  if (!is_near(&member)) fail_outside(name);
  note_change();
  if (member.copies_ == nullptr) {
    member.copies_ = std::make_shared<Copies>();
    member.copies_->add(&member);
  }
  ChildEntry entry;
  entry.name = std::move(name);
  entry.place = distance(this, &member);
  entry.copies = member.copies_;
  children_.push_back(std::move(entry));
}

void Module::add_shared(std::string name, std::shared_ptr<Module> module, Copy copy) {
  check_name(name);
  if (module == nullptr) {
    fail(ErrorCode::kValue, "[", class_name(*this), "] the module '", name, "' is null");
  }
  note_change();
  ChildEntry entry;
  entry.name = std::move(name);
  entry.shared = std::move(module);
  entry.copy = copy;
  children_.push_back(std::move(entry));
}

void Module::unregister_module(const std::string& name) {
  const auto found = std::find_if(children_.begin(), children_.end(),
                                  [&](const ChildEntry& entry) { return entry.name == name; });
  if (found == children_.end()) {
    std::vector<std::string> names;
    for (const ChildEntry& entry : children_) names.push_back(entry.name);
    fail(ErrorCode::kValue, "[", class_name(*this), "] there is no module '", name, "' among ",
         names.size(), names.empty() ? "" : ": ", absl::StrJoin(names, ", "));
  }
  note_change();
  children_.erase(found);
}

void Module::place_last_child(size_t index) {
  note_change();
  for (size_t i = children_.size() - 1; i > index; --i) {
    ChildEntry& moved = children_[i - 1];
    if (moved.name == std::to_string(i - 1)) moved.name = std::to_string(i);
    std::swap(children_[i - 1], children_[i]);
  }
  children_[index].name = std::to_string(index);
}

void Module::register_children_of(const Module& container) {
  const size_t count = container.children_.size();  // of this module, perhaps
  for (size_t i = 0; i < count; ++i) {
    const ChildEntry entry = container.children_[i];
    add_shared(std::to_string(children_.size()), entry.shared, entry.copy);
  }
}

// The record of copies is filled by the copies of `module`, but does not have the module itself.
void Module::start_copies(Module& module) {
  if (module.copies_ != nullptr) module.copies_->remove(&module);
  module.copies_ = std::make_shared<Copies>();
}

void Module::add_value(std::string name, std::shared_ptr<Module> module, Copy copy) {
  start_copies(*module);
  const std::shared_ptr<Copies> copies = module->copies_;
  add_shared(std::move(name), std::move(module), copy);
  children_.back().copies = copies;
}

void Module::set_computed(TensorEntry& entry, const Tensor& value) {
  // The next use computes it again, so that a graph need not keep it.
  if (recording_graph()) capture_table->caches(value);
  const LayerMask unrecorded(kLayerCapture);
  resolve(entry) = value;
  for (const std::ptrdiff_t place : entry.members) at_distance<Tensor>(this, place) = value;
}

// As a member, a held tensor may be assigned through any reference to its module.
Tensor& Module::resolve(const TensorEntry& entry) const {
  if (entry.held) return const_cast<Tensor&>(entry.tensor);
  return at_distance<Tensor>(this, entry.place);
}

Module& Module::resolve(const ChildEntry& entry) const {
  if (entry.shared != nullptr) {
    Module* copy = entry.copies != nullptr ? record(entry)->nearest(this) : nullptr;
    return copy != nullptr ? *copy : *entry.shared;
  }
  Module& member = at_distance<Module>(this, entry.place);
  if (!entry.copies->contains(&member)) {
    fail(ErrorCode::kValue, "[", class_name(*this), "] the module registered as '", entry.name,
         "' was destroyed, or is not a member that was copied with the object: declare it in the "
         "class, or hold it in a ModuleList or a shared_ptr");
  }
  return member;
}

}  // namespace mytorch::nn
