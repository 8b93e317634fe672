// The contents of a module: parameters, buffers and descendants by name.
#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/nn/module.h"
#include "nn/modules/names.h"
#include "nn/parameter_access.h"

namespace mytorch::nn {

void Module::visit(const std::string& prefix, const Visit& visit, bool recurse) const {
  if (lazy_) {
    fail(ErrorCode::kValue, "[", class_name(*this), "] ",
         prefix.empty() ? "the module" : absl::StrCat("'", prefix, "'"),
         " has no parameters yet, because it takes their sizes from its first input: call the "
         "model with an example input first");
  }
  for (const TensorEntry& entry : tensors_) {
    if (entry.computed) continue;
    Tensor& tensor = resolve(entry);
    if (tensor.defined()) visit(join(prefix, entry.name), tensor, entry.role);
  }
  if (!recurse) return;
  for (const ChildEntry& entry : children_) {
    resolve(entry).visit(join(prefix, entry.name), visit);
  }
}

void detail::ParameterAccess::visit(
    const Module& module, const std::function<void(const std::string&, Tensor&)>& function) {
  module.visit("", [&](const std::string& name, Tensor& tensor, Module::Role role) {
    if (role == Module::Role::kParameter) function(name, tensor);
  });
}
void detail::ParameterAccess::visit_buffers(
    const Module& module, const std::function<void(const std::string&, Tensor&)>& function) {
  module.visit("", [&](const std::string& name, Tensor& tensor, Module::Role role) {
    if (role != Module::Role::kParameter) function(name, tensor);
  });
}
void detail::ParameterAccess::convert(Module& module,
                                      const std::function<Tensor(const Tensor&)>& function) {
  module.convert(function);
}
void detail::ParameterAccess::visit_own(
    const Module& module, const std::function<void(const std::string&, Tensor&, bool)>& function) {
  for (const Module::TensorEntry& entry : module.tensors_) {
    if (entry.computed) continue;
    function(entry.name, module.resolve(entry), entry.role != Module::Role::kParameter);
  }
}
bool detail::ParameterAccess::is_lazy(const Module& module) { return module.lazy(); }
bool detail::ParameterAccess::is_parametrized(const Module& module) { return module.parametrized_; }
const std::string& detail::ParameterAccess::child_name(const Module& module, size_t index) {
  return module.children_[index].name;
}
std::shared_ptr<Module> detail::ParameterAccess::child(const Module& module, size_t index) {
  return module.children_[index].shared;
}

template <class T>
const T* NamedList<T>::find(std::string_view name) const {
  const auto found = std::find_if(this->begin(), this->end(),
                                  [&](const auto& item) { return item.first == name; });
  return found == this->end() ? nullptr : &found->second;
}

template <class T>
T& NamedList<T>::operator[](std::string_view name) {
  if (T* found = find(name)) return *found;
  fail(ErrorCode::kValue, "[named list] there is no '", name, "' among ", this->size(), " names",
       this->empty() ? "" : ": ", absl::StrJoin(keys(), ", "));
}

template <class T>
std::vector<std::string> NamedList<T>::keys() const {
  std::vector<std::string> list;
  for (const NamedItem<T>& item : *this) list.push_back(item.first);
  return list;
}

template <class T>
std::vector<T> NamedList<T>::values() const {
  std::vector<T> list;
  for (const NamedItem<T>& item : *this) list.push_back(item.second);
  return list;
}

template <class T>
std::vector<std::pair<std::string, T>> NamedList<T>::pairs() const {
  std::vector<std::pair<std::string, T>> list;
  for (const NamedItem<T>& item : *this) list.emplace_back(item.first, item.second);
  return list;
}

template class NamedList<Tensor>;
template class NamedList<Module*>;

NamedList<Tensor> Module::unique(bool parameters, bool recurse) const {
  NamedList<Tensor> list;
  std::set<const void*> seen;
  const auto add = [&](const std::string& name, Tensor& tensor, Role role) {
    if ((role == Role::kParameter) != parameters) return;
    if (seen.insert(tensor.impl()).second) list.push_back({name, tensor});
  };
  visit("", add, recurse);
  return list;
}

NamedList<Tensor> Module::named_parameters(bool recurse) const { return unique(true, recurse); }
NamedList<Tensor> Module::named_buffers(bool recurse) const { return unique(false, recurse); }
std::vector<Tensor> Module::parameters(bool recurse) const {
  return unique(true, recurse).values();
}
std::vector<Tensor> Module::buffers(bool recurse) const { return unique(false, recurse).values(); }

NamedList<Module*> Module::named_children() {
  NamedList<Module*> list;
  for (const ChildEntry& entry : children_) list.push_back({entry.name, &resolve(entry)});
  return list;
}

std::vector<Module*> Module::children() { return named_children().values(); }

void Module::list_modules(const std::string& prefix, NamedList<Module*>& list) {
  const auto is_this = [this](const auto& named) { return named.second == this; };
  if (std::any_of(list.begin(), list.end(), is_this)) return;
  list.push_back({prefix, this});
  for (const ChildEntry& entry : children_) {
    resolve(entry).list_modules(join(prefix, entry.name), list);
  }
}

NamedList<Module*> Module::named_modules(const std::string& prefix, bool include_self) {
  NamedList<Module*> list;
  list_modules(prefix, list);
  if (!include_self) list.erase(list.begin());
  return list;
}

std::vector<Module*> Module::modules(bool include_self) {
  return named_modules("", include_self).values();
}

void Module::apply(const std::function<void(Module&)>& function) {
  for (const ChildEntry& entry : children_) resolve(entry).apply(function);
  function(*this);
}

void Module::apply(const std::function<void(const std::string&, Module&)>& function,
                   const std::string& prefix) {
  for (const ChildEntry& entry : children_) {
    resolve(entry).apply(function, join(prefix, entry.name));
  }
  function(prefix, *this);
}

int64_t Module::num_parameters(bool trainable_only) const {
  int64_t count = 0;
  for (const Tensor& parameter : parameters()) {
    if (!trainable_only || parameter.requires_grad()) count += parameter.numel();
  }
  return count;
}

}  // namespace mytorch::nn
