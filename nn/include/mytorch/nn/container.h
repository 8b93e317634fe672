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
  // Of a function of more arguments, which are given here: Lambda(log_softmax, 1, kFloat32).
  template <class F, class... Others>
  requires(sizeof...(Others) > 0 &&
           std::is_invocable_r_v<Tensor, F&, const Tensor&,
                                 Others&...>) explicit Lambda(F function, Others... others)
      : Lambda([function, others...](const Tensor& input) mutable {
          return function(input, others...);
        }) {}
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

// A module of any class, held by pointer: AnyModule any(Linear(4, 8)). Copies share the module.
class AnyModule {
 public:
  AnyModule() = default;
  // Takes a module by value, a shared_ptr to one, or a function from Tensor to Tensor.
  template <class M>
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): copies are excluded
  requires(!std::is_same_v<std::decay_t<M>, AnyModule>) explicit AnyModule(M&& module) {
    auto shared = detail::share(std::forward<M>(module));
    using Value = typename decltype(shared)::element_type;
    if (shared != nullptr) Module::check_parts<Value>(*shared);
    copy_ = Module::copier<Value>();
    module_ = std::move(shared);
  }
  template <class M>
  requires(!std::is_same_v<std::decay_t<M>, AnyModule>) AnyModule& operator=(M&& module) {
    return *this = AnyModule(std::forward<M>(module));
  }

  bool is_empty() const { return module_ == nullptr; }
  // Calls the module. Throws Error(kValue) if there is none. Modules whose forward takes other
  // arguments are called as their class: any.get<LSTM>()(x, state).
  template <class Result = Tensor>
  Tensor forward(const Tensor& input) const {
    static_assert(std::is_same_v<Result, Tensor>, "forward of an AnyModule returns a Tensor");
    return checked()(input);
  }
  // Returns the module as type M. Throws Error(kType) if it has another type.
  template <class M>
  M& get() const {
    if (M* typed = dynamic_cast<M*>(&checked())) return *typed;
    fail_type(checked());
  }
  const std::shared_ptr<Module>& ptr() const { return module_; }  // null if there is none
  template <class M>
  std::shared_ptr<M> ptr() const {
    return {module_, &get<M>()};
  }

 private:
  friend class Module;
  Module& checked() const {
    if (module_ == nullptr) detail::fail_empty_holder(typeid(AnyModule));
    return *module_;
  }
  [[noreturn]] static void fail_type(const Module& module);

  std::shared_ptr<Module> module_;
  Module::Copy copy_ = nullptr;
};

// A module for a container, with its name: Sequential({{"fc", Linear(4, 8)}, {"act", ReLU()}}).
class NamedAny {
 public:
  // Takes an AnyModule, or what its constructor takes.
  template <class M>
  NamedAny(std::string name, M&& module) : name_(std::move(name)), any_(std::forward<M>(module)) {}
  const std::string& name() const { return name_; }
  const AnyModule& module() const { return any_; }

 private:
  friend class Module;
  friend class utils::parametrize::Registration;
  std::string name_;
  AnyModule any_;
};
using NamedAnyModule = NamedAny;  // libtorch's name

// A module that a container holds, with its name.
using NamedShared = std::pair<std::string, std::shared_ptr<Module>>;

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

  // Puts a module before the one at `index`. Throws Error(kValue) if index > size().
  template <class M>
  void insert(size_t index, M&& module) {
    check_index(index, size() + 1);
    push_back(std::forward<M>(module));
    place_last_child(index);
  }
  // Appends the modules of another list, which both then share, or those of a container of what
  // push_back takes.
  void extend(const ModuleList& modules) { register_children_of(modules); }
  template <class Modules>
  requires(!std::is_base_of_v<Module, Modules>) void extend(const Modules& modules) {
    for (const auto& module : modules) push_back(module);
  }

  size_t size() const { return num_children(); }
  bool empty() const { return size() == 0; }
  bool is_empty() const { return empty(); }  // libtorch's name; also of a list made from nullptr
  // Throws Error(kValue) if index >= size().
  Module& operator[](size_t index);
  using Layer::ptr;
  // Returns the pointer that the list holds. Throws Error(kValue) if index >= size().
  std::shared_ptr<Module> ptr(size_t index) const {
    check_index(index, size());
    return shared_child(index);
  }
  // The same as type M. Throws Error(kType) if the module has another type.
  template <class M>
  std::shared_ptr<M> ptr(size_t index) {
    return {ptr(index), &at<M>(index)};
  }
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
  static void check_index(size_t index, size_t bound);
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
  ModuleDict() = default;
  explicit ModuleDict(std::initializer_list<NamedAny> modules) { update(modules); }
  explicit ModuleDict(const std::vector<NamedShared>& modules) { update(modules); }
  // Adds a module given by value, a shared_ptr to a module, or a function from Tensor to Tensor.
  // Throws Error(kValue) if the name exists.
  template <class M>
  void insert(std::string name, M&& module) {
    register_any(NamedAny(std::move(name), std::forward<M>(module)));
  }
  // Adds modules, in place of those that have their names:
  // dict.update({{"fc", Linear(4, 8)}, {"act", ReLU()}}).
  void update(std::initializer_list<NamedAny> modules);
  void update(const std::vector<NamedShared>& modules);
  void update(const ModuleDict& modules) { update(modules.items()); }
  // Removes a module and returns it. Throws Error(kValue), listing the names, if there is none.
  std::shared_ptr<Module> pop(std::string_view name);
  void clear() { remove_children(); }

  size_t size() const { return num_children(); }
  bool empty() const { return size() == 0; }
  bool is_empty() const { return empty(); }  // as of ModuleList
  bool contains(std::string_view name) const;
  std::vector<std::string> keys() const;
  std::vector<std::shared_ptr<Module>> values() const;
  std::vector<NamedShared> items() const;
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
  explicit ParameterList(const std::vector<Tensor>& parameters) { extend(parameters); }
  explicit ParameterList(std::initializer_list<Tensor> parameters) { extend(parameters); }
  template <class... Tensors>
  requires(std::is_same_v<std::decay_t<Tensors>, Tensor>&&...) explicit ParameterList(
      const Tensor& first, const Tensors&... others)
      : ParameterList(std::vector<Tensor>{first, others...}) {}
  void push_back(Tensor parameter);
  void append(Tensor parameter) { push_back(std::move(parameter)); }  // libtorch's name
  // Appends each tensor of a vector, or of another list, which both then share.
  template <class Tensors>
  void extend(const Tensors& parameters) {
    for (const Tensor& parameter : parameters) push_back(parameter);
  }
  void extend(const ParameterList& parameters) { extend(parameters.parameters()); }
  size_t size() const { return num_held(); }
  bool empty() const { return size() == 0; }
  bool is_empty() const { return empty(); }  // as of ModuleList
  // Return a reference that is valid until the next push_back. Throw Error(kValue) if index >=
  // size().
  Tensor& operator[](size_t index);
  Tensor& at(size_t index) { return (*this)[index]; }
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
  // Adds parameters, in place of those that have their names: dict.update({{"scale", ones({2})}}).
  void update(const std::vector<std::pair<std::string, Tensor>>& parameters);
  void update(const ParameterDict& parameters) { update(parameters.items()); }
  // Removes a parameter and returns it. Throws Error(kValue), listing the names, if there is none.
  Tensor pop(std::string_view name);
  void clear() {
    while (!empty()) remove_held(size() - 1);
  }
  size_t size() const { return num_held(); }
  bool empty() const { return size() == 0; }
  bool is_empty() const { return empty(); }  // as of ModuleList
  bool contains(std::string_view name) const;
  std::vector<std::string> keys() const;
  std::vector<Tensor> values() const;
  std::vector<std::pair<std::string, Tensor>> items() const;
  // Return a reference that is valid until the next insertion or removal. Throw Error(kValue),
  // listing the names, if there is no such parameter.
  Tensor& operator[](std::string_view name);
  Tensor& get(std::string_view name) { return (*this)[name]; }
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
  using Layer::ptr;
  std::shared_ptr<Module> ptr(size_t index) const { return ModuleList::ptr(index); }
  template <class M>
  std::shared_ptr<M> ptr(size_t index) {
    return ModuleList::ptr<M>(index);
  }
  Tensor forward(const Tensor& input) override;
  template <class Result>
  requires(std::is_same_v<Result, Tensor>) Tensor forward(const Tensor& input) {
    return forward(input);
  }
};

}  // namespace mytorch::nn
