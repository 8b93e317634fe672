// Modules that contain other modules.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "mytorch/nn/module.h"

namespace mytorch::nn {

// Wraps a function as a module.
class Lambda final : public Module {
 public:
  using Function = std::function<Tensor(const Tensor&)>;
  explicit Lambda(Function function) : function_(std::move(function)) {}
  Tensor forward(const Tensor& input) override { return function_(input); }

 private:
  Function function_;
};

// An indexed list of modules, named "0", "1", ... Copies of the list share the modules.
class ModuleList : public Module {
 public:
  ModuleList() = default;
  template <class... Modules, class = std::enable_if_t<
                                  (sizeof...(Modules) > 1) ||
                                  (!std::is_base_of_v<ModuleList, std::decay_t<Modules>> && ...)>>
  explicit ModuleList(Modules&&... modules) {
    (push_back(std::forward<Modules>(modules)), ...);
  }

  // Appends a module given by value, a shared_ptr to a module, or a function from Tensor to Tensor.
  template <class M>
  void push_back(M&& module) {
    push_back(std::to_string(size()), std::forward<M>(module));
  }
  template <class M>
  void push_back(std::string name, M&& module) {
    using Value = std::decay_t<M>;
    if constexpr (std::is_base_of_v<Module, Value>) {
      register_module(std::move(name), std::make_shared<Value>(std::forward<M>(module)));
    } else if constexpr (std::is_convertible_v<Value, std::shared_ptr<Module>>) {
      register_module(std::move(name), std::forward<M>(module));
    } else {
      static_assert(std::is_convertible_v<Value, Lambda::Function>,
                    "give a module, a shared_ptr to one, or a function from Tensor to Tensor");
      register_module(std::move(name), std::make_shared<Lambda>(std::forward<M>(module)));
    }
  }

  size_t size() const { return num_children(); }
  bool empty() const { return size() == 0; }
  // Throws Error(kValue) if index >= size().
  Module& operator[](size_t index);
  // Returns the module as type M. Throws Error(kType) if it has another type.
  template <class M>
  M& at(size_t index) {
    Module& module = (*this)[index];
    if (M* typed = dynamic_cast<M*>(&module)) return *typed;
    fail_type(index, module);
  }

 private:
  [[noreturn]] static void fail_type(size_t index, const Module& module);
};

// Calls modules one after the other: Sequential(Linear(784, 32), ReLU(), Linear(32, 10)).
class Sequential final : public ModuleList {
 public:
  using ModuleList::ModuleList;
  Tensor forward(const Tensor& input) override;
};

}  // namespace mytorch::nn
