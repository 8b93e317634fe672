// Modules that contain other modules.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/nn/module.h"
#include "mytorch/std_function.h"

namespace mytorch::nn {

// Wraps a function as a module.
class Lambda final : public Layer<Lambda> {
 public:
  using Function = std::function<Tensor(const Tensor&)>;
  template <class F>
  requires(std::is_convertible_v<F, Function> &&
           !std::is_base_of_v<Module, F>) explicit Lambda(F function)
      : function_(std::move(function)) {}
  explicit Lambda(Tensor (*function)(const Tensor&)) : function_(function) {}  // for overload sets
  Tensor forward(const Tensor& input) override { return function_(input); }

 private:
  Function function_;
};

// libtorch's name: Functional(torch::relu).
using Functional = Lambda;

namespace detail {

// Returns a shared_ptr to a module given by value, by pointer, or as a function.
template <class M>
auto share(M&& module) {
  using Value = std::decay_t<M>;
  if constexpr (std::is_base_of_v<Module, Value>) {
    return std::make_shared<Value>(std::forward<M>(module));
  } else if constexpr (requires { typename Value::element_type; }) {
    static_assert(std::is_convertible_v<Value, std::shared_ptr<Module>>,
                  "give a module, a shared_ptr to one, or a function from Tensor to Tensor");
    return std::forward<M>(module);
  } else if constexpr (requires(Value & holder) { holder.ptr(); }) {
    return module.ptr();
  } else {
    static_assert(std::is_convertible_v<Value, Lambda::Function>,
                  "give a module, a shared_ptr to one, or a function from Tensor to Tensor");
    return std::make_shared<Lambda>(std::forward<M>(module));
  }
}

// Visits the elements list[0], list[1], ... of a container.
template <class List>
class IndexIterator {
  using Element = decltype(std::declval<List&>().element(size_t{}));

 public:
  IndexIterator(List& list, size_t index) : list_(list), index_(index) {}
  // A pair is returned by a reference to a member, so that `auto&` refers to it.
  std::remove_reference_t<Element>& operator*() {
    if constexpr (std::is_reference_v<Element>) {
      return list_.element(index_);
    } else {
      return item_.emplace(list_.element(index_));
    }
  }
  IndexIterator& operator++() {
    ++index_;
    return *this;
  }
  bool operator==(const IndexIterator& other) const { return index_ == other.index_; }

 private:
  struct None {};

  List& list_;
  size_t index_;
  [[no_unique_address]] std::conditional_t<std::is_reference_v<Element>, None,
                                           std::optional<Element>>
      item_;
};

}  // namespace detail

// A module for a container, with its name: Sequential({{"fc", Linear(4, 8)}, {"act", ReLU()}}).
class NamedAny {
 public:
  // Takes a module by value, a shared_ptr to one, or a function from Tensor to Tensor.
  template <class M>
  NamedAny(std::string name, M&& module) : name_(std::move(name)) {
    auto shared = detail::share(std::forward<M>(module));
    using Value = typename decltype(shared)::element_type;
    if (shared != nullptr) Module::check_parts<Value>(*shared);
    copy_ = Module::copier<Value>();
    module_ = std::move(shared);
  }

 private:
  friend class Module;
  friend class utils::parametrize::Registration;
  std::string name_;
  std::shared_ptr<Module> module_;
  Module::Copy copy_;
};

// An indexed list of modules, named "0", "1", ... Copies of the list share the modules.
//
//   for (nn::Module& layer : layers) x = layer(x);
class ModuleList : public Layer<ModuleList> {
 public:
  using Layer::Layer;
  ModuleList() = default;
  template <class... Modules, class = std::enable_if_t<
                                  (sizeof...(Modules) > 1) ||
                                  (!std::is_base_of_v<ModuleList, std::decay_t<Modules>> && ...)>>
  explicit ModuleList(Modules&&... modules) {
    (push_back(std::forward<Modules>(modules)), ...);
  }
  explicit ModuleList(std::initializer_list<NamedAny> modules);

  // Appends a module given by value, a shared_ptr to a module, or a function from Tensor to Tensor.
  template <class M>
  void push_back(M&& module) {
    push_back(std::to_string(size()), std::forward<M>(module));
  }
  template <class M>
  void push_back(std::string name, M&& module) {
    register_any(NamedAny(std::move(name), std::forward<M>(module)));
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
  using Iterator = detail::IndexIterator<ModuleList>;
  Iterator begin() { return {*this, 0}; }
  Iterator end() { return {*this, size()}; }

 private:
  friend Iterator;
  Module& element(size_t index) { return child(index); }
  [[noreturn]] static void fail_type(size_t index, const Module& module);
};

// Modules by name, in the order of insertion. Copies of the dictionary share the modules.
//
//   nn::ModuleDict heads;
//   heads.insert("age", nn::Linear(8, 1));
//   for (auto [name, head] : heads) ...
class ModuleDict final : public Layer<ModuleDict> {
 public:
  using Layer::Layer;
  // Adds a module given by value, a shared_ptr to a module, or a function from Tensor to Tensor.
  // Throws Error(kValue) if the name exists.
  template <class M>
  void insert(std::string name, M&& module) {
    register_any(NamedAny(std::move(name), std::forward<M>(module)));
  }
  // Adds modules: dict.update({{"fc", Linear(4, 8)}, {"act", ReLU()}}).
  void update(std::initializer_list<NamedAny> modules);

  size_t size() const { return num_children(); }
  bool empty() const { return size() == 0; }
  bool contains(std::string_view name) const;
  std::vector<std::string> keys() const;
  // Throws Error(kValue), listing the names, if there is no such module.
  Module& operator[](std::string_view name);
  // Returns the module as type M. Throws Error(kType) if it has another type.
  template <class M>
  M& at(std::string_view name) {
    Module& module = (*this)[name];
    if (M* typed = dynamic_cast<M*>(&module)) return *typed;
    fail_type(name, module);
  }
  using Iterator = detail::IndexIterator<ModuleDict>;
  Iterator begin() { return {*this, 0}; }
  Iterator end() { return {*this, size()}; }

 private:
  friend Iterator;
  std::pair<const std::string&, Module&> element(size_t index) {
    return {child_name(index), child(index)};
  }
  [[noreturn]] static void fail_type(std::string_view name, const Module& module);
};

// An indexed list of parameters, named "0", "1", ...
class ParameterList final : public Layer<ParameterList> {
 public:
  using Layer::Layer;
  ParameterList() = default;
  explicit ParameterList(const std::vector<Tensor>& parameters);
  void push_back(Tensor parameter);
  void append(Tensor parameter) { push_back(std::move(parameter)); }  // libtorch's name
  size_t size() const { return num_held(); }
  bool empty() const { return size() == 0; }
  // Returns a reference that is valid until the next push_back. Throws Error(kValue) if index >=
  // size().
  Tensor& operator[](size_t index);
  using Iterator = detail::IndexIterator<ParameterList>;
  Iterator begin() { return {*this, 0}; }
  Iterator end() { return {*this, size()}; }
  std::string describe() const override;

 private:
  friend Iterator;
  Tensor& element(size_t index) { return held_parameter(index); }
};

// Parameters by name, in the order of insertion.
class ParameterDict final : public Layer<ParameterDict> {
 public:
  using Layer::Layer;
  // Throws Error(kValue) if the name exists.
  void insert(std::string name, Tensor parameter);
  size_t size() const { return num_held(); }
  bool empty() const { return size() == 0; }
  bool contains(std::string_view name) const;
  std::vector<std::string> keys() const;
  // Returns a reference that is valid until the next insertion. Throws Error(kValue), listing the
  // names, if there is no such parameter.
  Tensor& operator[](std::string_view name);
  using Iterator = detail::IndexIterator<ParameterDict>;
  Iterator begin() { return {*this, 0}; }
  Iterator end() { return {*this, size()}; }
  std::string describe() const override;

 private:
  friend Iterator;
  std::pair<const std::string&, Tensor&> element(size_t index) {
    return {held_name(index), held_parameter(index)};
  }
};

// Calls modules one after the other: Sequential(Linear(784, 32), ReLU(), Linear(32, 10)).
class Sequential final : public Layer<Sequential, ModuleList> {
 public:
  using Layer::Layer;
  Sequential() = default;
  // As that of ModuleList, so that the messages for other arguments name the caller's line.
  template <class... Modules, class = std::enable_if_t<
                                  (sizeof...(Modules) > 1) ||
                                  (!std::is_base_of_v<ModuleList, std::decay_t<Modules>> && ...)>>
  explicit Sequential(Modules&&... modules) {
    (push_back(std::forward<Modules>(modules)), ...);
  }
  Tensor forward(const Tensor& input) override;
};

}  // namespace mytorch::nn
