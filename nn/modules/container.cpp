#include "mytorch/nn/container.h"

#include <algorithm>

#include "core/types/errors.h"

namespace mytorch::nn {
namespace {

[[noreturn]] void fail_index(const char* list, size_t index, size_t size, const char* elements) {
  fail(ErrorCode::kValue, "[", list, "] index ", index, " is out of range for ", size, " ",
       elements);
}

// Returns the index of a name. Throws Error(kValue) if it does not exist.
size_t find_key(const char* dict, std::string_view name, const std::vector<std::string>& keys) {
  const auto found = std::find(keys.begin(), keys.end(), name);
  if (found == keys.end()) {
    fail(ErrorCode::kValue, "[", dict, "] there is no '", name, "' among ", keys.size(), " names",
         keys.empty() ? "" : ": ", absl::StrJoin(keys, ", "));
  }
  return static_cast<size_t>(found - keys.begin());
}

bool has_key(std::string_view name, const std::vector<std::string>& keys) {
  return std::find(keys.begin(), keys.end(), name) != keys.end();
}

}  // namespace

// ---- modules ----

void Module::register_any(NamedAny module) {
  add_shared(std::move(module.name_), std::move(module.any_.module_), module.any_.copy_);
}

void Module::replace_any(NamedAny module) {
  const auto found = std::find_if(children_.begin(), children_.end(), [&](const ChildEntry& entry) {
    return entry.name == module.name_;
  });
  if (found == children_.end()) return register_any(std::move(module));
  ChildEntry replaced = std::move(*found);
  const auto place = found - children_.begin();
  children_.erase(found);
  try {
    register_any(std::move(module));
  } catch (...) {
    children_.insert(children_.begin() + place, std::move(replaced));
    throw;
  }
  std::rotate(children_.begin() + place, children_.end() - 1, children_.end());
}

void AnyModule::fail_type(const Module& module) {
  fail(ErrorCode::kType, "[AnyModule] the module has another type: ", module.describe());
}

ModuleList::ModuleList(std::initializer_list<NamedAny> modules) {
  for (const NamedAny& module : modules) register_any(module);
}

void ModuleDict::update(std::initializer_list<NamedAny> modules) {
  for (const NamedAny& module : modules) replace_any(module);
}

void ModuleDict::update(const std::vector<NamedShared>& modules) {
  for (const auto& [name, module] : modules) replace_any(NamedAny(name, module));
}

std::shared_ptr<Module> ModuleDict::pop(std::string_view name) {
  std::shared_ptr<Module> module = shared_child(find_key("ModuleDict", name, keys()));
  unregister_module(std::string(name));
  return module;
}

std::vector<std::shared_ptr<Module>> ModuleDict::values() const {
  std::vector<std::shared_ptr<Module>> values;
  for (size_t i = 0; i < size(); ++i) values.push_back(shared_child(i));
  return values;
}

std::vector<NamedShared> ModuleDict::items() const {
  std::vector<NamedShared> items;
  for (size_t i = 0; i < size(); ++i) items.emplace_back(child_name(i), shared_child(i));
  return items;
}

void ModuleList::check_index(size_t index, size_t bound) {
  if (index >= bound) fail_index("ModuleList", index, bound, "places");
}

Module& ModuleList::operator[](size_t index) {
  if (index >= size()) fail_index("ModuleList", index, size(), "modules");
  return child(index);
}

void ModuleList::fail_type(size_t index, const Module& module) {
  fail(ErrorCode::kType, "[ModuleList] module ", index, " has another type: ", module.describe());
}

Tensor Sequential::forward(const Tensor& input) {
  if (empty()) return input;
  Tensor x = child(0)(input);
  for (size_t i = 1; i < size(); ++i) x = child(i)(x);
  return x;
}

std::vector<std::string> ModuleDict::keys() const {
  std::vector<std::string> keys;
  for (size_t i = 0; i < size(); ++i) keys.push_back(child_name(i));
  return keys;
}

bool ModuleDict::contains(std::string_view name) const { return has_key(name, keys()); }

Module& ModuleDict::operator[](std::string_view name) {
  return child(find_key("ModuleDict", name, keys()));
}

void ModuleDict::fail_type(std::string_view name, const Module& module) {
  fail(ErrorCode::kType, "[ModuleDict] module '", name, "' has another type: ", module.describe());
}

// ---- parameters ----

void ParameterList::push_back(Tensor parameter) {
  hold_parameter(std::to_string(size()), std::move(parameter));
}

Tensor& ParameterList::operator[](size_t index) {
  if (index >= size()) fail_index("ParameterList", index, size(), "parameters");
  return held_parameter(index);
}

std::string ParameterList::describe() const {
  return absl::StrCat("ParameterList(", size(), " parameters)");
}

void ParameterDict::insert(std::string name, Tensor parameter) {
  hold_parameter(std::move(name), std::move(parameter));
}

void ParameterDict::update(const std::vector<std::pair<std::string, Tensor>>& parameters) {
  for (const auto& [name, parameter] : parameters) {
    if (!contains(name)) {
      insert(name, parameter);
    } else {
      if (parameter.defined()) parameter.requires_grad_();
      (*this)[name] = parameter;
    }
  }
}

Tensor ParameterDict::pop(std::string_view name) {
  const size_t index = find_key("ParameterDict", name, keys());
  Tensor parameter = held_parameter(index);
  remove_held(index);
  return parameter;
}

std::vector<Tensor> ParameterDict::values() const {
  std::vector<Tensor> values;
  for (size_t i = 0; i < size(); ++i) values.push_back(held_parameter(i));
  return values;
}

std::vector<std::pair<std::string, Tensor>> ParameterDict::items() const {
  std::vector<std::pair<std::string, Tensor>> items;
  for (size_t i = 0; i < size(); ++i) items.emplace_back(held_name(i), held_parameter(i));
  return items;
}

std::vector<std::string> ParameterDict::keys() const {
  std::vector<std::string> keys;
  for (size_t i = 0; i < size(); ++i) keys.push_back(held_name(i));
  return keys;
}

bool ParameterDict::contains(std::string_view name) const { return has_key(name, keys()); }

Tensor& ParameterDict::operator[](std::string_view name) {
  return held_parameter(find_key("ParameterDict", name, keys()));
}

std::string ParameterDict::describe() const {
  return absl::StrCat("ParameterDict(", absl::StrJoin(keys(), ", "), ")");
}

}  // namespace mytorch::nn
