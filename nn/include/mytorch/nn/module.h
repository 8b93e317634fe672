// The base class of all modules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/tensor.h"

namespace mytorch::nn {

using NamedTensor = std::pair<std::string, Tensor>;

// Names that load_state_dict found on one side only.
struct LoadReport {
  std::vector<std::string> missing;     // in the module but not in the dictionary
  std::vector<std::string> unexpected;  // in the dictionary but not in the module
};

namespace detail {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"  // hiding is the purpose of Forwards

// The ways to declare forward of one tensor. A module overrides one of them; each calls the next.
// They are members of a base class, hidden by Module::forward, so that `module.forward(x)` is not
// ambiguous.
class Forwards {
 public:
  virtual ~Forwards() = default;

 protected:
  struct Unused {};
  virtual Tensor forward(const Tensor& input);
  virtual Tensor forward(Tensor input);
  virtual Tensor forward(const Tensor& input) const;
  virtual Tensor forward(Tensor input) const;
  Tensor call_forward(const Tensor& input);
};

}  // namespace detail

// A part of a model. It consists of named parameters (trained tensors), buffers (tensors that are
// not trained) and children (other modules). Modules are ordinary classes, and their parts are
// ordinary members:
//
//   struct Net : nn::Module {
//     nn::Linear hidden{784, 32};
//     nn::Linear output{32, 10};
//     Net() {
//       register_module("hidden", hidden);
//       register_module("output", output);
//     }
//     Tensor forward(const Tensor& x) override { return output(relu(hidden(x))); }
//   };
//
// A copy of a module shares its parameters, as a copy of a Tensor shares its memory; `clone` copies
// the parameters as well. A registered member is found by its offset in the object, so copies and
// moves need no registration, and members may be assigned: `decoder.weight = encoder.weight` ties
// the two. Modules that are not members, such as the elements of a std::vector, belong in a
// ModuleList or a shared_ptr: any function that needs a registered module throws Error(kValue) if
// it was destroyed, or was not copied together with this object.
class Module : private detail::Forwards {
 public:
  ~Module() override;

  // Computes the module's output. A module declares forward with `const Tensor&` or `Tensor`, const
  // or not. Modules whose forward takes other arguments derive from Callable. The second parameter
  // keeps this function from being one of those that modules override.
  Tensor forward(const Tensor& input, Unused /*unused*/ = {}) { return call_forward(input); }
#pragma GCC diagnostic pop
  Tensor operator()(const Tensor& input) { return call_forward(input); }
  template <class... Args>
  requires(sizeof...(Args) != 1) void operator()(Args&&...) {
    static_assert(sizeof...(Args) == 1,
                  "operator() of a Module takes one tensor: derive the class from "
                  "nn::Callable<Class> to call its forward of other arguments");
  }

  // -- contents, in the order of registration: own members first, then those of children. A tensor
  // that occurs more than once is listed once, under its first name ("hidden.weight") --
  std::vector<Tensor> parameters() const;
  std::vector<NamedTensor> named_parameters() const;
  std::vector<NamedTensor> named_buffers() const;
  std::vector<std::pair<std::string, Module*>> named_children();
  // Returns this module, as "", and all its descendants.
  std::vector<std::pair<std::string, Module*>> named_modules();
  void apply(const std::function<void(Module&)>& function);   // children first
  int64_t num_parameters(bool trainable_only = false) const;  // number of elements

  // -- state: parameters and persistent buffers by name --
  // Returns tensors that share the module's memory.
  TensorMap state_dict() const;
  // Copies the values of `state` into the module's tensors. Throws Error(kValue), listing names
  // without a counterpart, if `strict`, and Error(kShape), listing the shapes, if shapes differ.
  // Changes nothing if it throws.
  LoadReport load_state_dict(const TensorMap& state, bool strict = true);
  // Save the state to a safetensors file, and load it. A failing `save` leaves an existing file
  // unchanged.
  void save(const std::string& path) const;
  LoadReport load(const std::string& path, bool strict = true);

  // -- modes and conversion --
  // Sets training or evaluation mode of this module and its descendants; affects Dropout and
  // BatchNorm.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }
  void requires_grad(bool on);  // sets requires_grad of all parameters
  void zero_grad();             // clears the gradients of all parameters
  // Move or convert parameters, their gradients, and buffers, in place: the tensors stay the same
  // and take other data (Tensor::set_data), so optimizers go on training them. A dtype applies to
  // floating-point tensors only.
  void to(Device device);
  void to(ScalarType dtype);
  void to(Device device, ScalarType dtype);

  // -- printing --
  std::string str() const;  // the tree of modules
  // Returns one line for str(): the class name and, if overridden, the options.
  virtual std::string describe() const;

 protected:
  Module() = default;
  Module(const Module& other);
  Module(Module&& other) noexcept;
  Module& operator=(const Module& other);
  Module& operator=(Module&& other) noexcept;

  // Each registers a member of the class under a name that is unique in this module and contains no
  // '.'. Undefined tensors are ignored until they are assigned. Throws Error(kValue) for what lies
  // too far from this object to be a member.
  void register_parameter(std::string name, Tensor& member);  // also calls requires_grad_()
  void register_buffer(std::string name, Tensor& member, bool persistent = true);
  template <class M>
  requires(std::is_base_of_v<Module, M>) void register_module(std::string name, M& member) {
    check_parts<M>(member);
    add_member(std::move(name), member);
  }
  // Registers a child held by pointer, which copies of this module share.
  template <class M>
  void register_module(std::string name, std::shared_ptr<M> module) {
    if (module != nullptr) check_parts<M>(*module);
    add_shared(std::move(name), std::move(module), copier<M>());
  }
  Module& child(size_t index) { return resolve(children_[index]); }
  const Module& child(size_t index) const { return resolve(children_[index]); }
  size_t num_children() const { return children_.size(); }

 private:
  template <class M>
  friend M clone(const M& module);

  enum class Role { kParameter, kBuffer, kTransientBuffer };
  struct TensorEntry {
    std::string name;
    std::ptrdiff_t place;  // offset of the member from this Module, in bytes
    Role role;
  };
  using Copy = std::shared_ptr<Module> (*)(const Module&);
  // The addresses of a registered member and of the modules that were copied or moved from it.
  class Copies;
  struct ChildEntry {
    std::string name;
    std::ptrdiff_t place = 0;        // offset, for a member
    std::shared_ptr<Copies> copies;  // of a member
    std::shared_ptr<Module> shared;  // set for a child held by pointer
    Copy copy = nullptr;             // copies such a child
  };
  struct CloneMemo {
    std::map<const void*, Tensor> tensors;
    std::map<const void*, std::shared_ptr<Module>> modules;
  };
  using Visit = std::function<void(const std::string& name, Tensor& tensor, Role role)>;

  // Returns null if M is not copyable. The copier returns null if the object's class is not M.
  template <class M>
  static Copy copier() {
    if constexpr (std::is_copy_constructible_v<M> && !std::is_abstract_v<M>) {
      return [](const Module& module) -> std::shared_ptr<Module> {
        if (typeid(module) != typeid(M)) return nullptr;
        return std::make_shared<M>(static_cast<const M&>(module));
      };
    } else {
      return nullptr;
    }
  }

  // Throws Error(kValue) if a registered member of `module` lies outside of it.
  template <class M>
  static void check_parts(const M& module) {
    if (typeid(module) == typeid(M)) module.Module::check_within(&module, sizeof(M));
  }
  void check_within(const void* object, size_t bytes) const;
  void check_near(const std::string& name, const void* member) const;
  [[noreturn]] void fail_outside(const std::string& name) const;
  void add_member(std::string name, Module& member);
  void add_shared(std::string name, std::shared_ptr<Module> module, Copy copy);
  void check_name(const std::string& name) const;
  Tensor& resolve(const TensorEntry& entry) const;
  Module& resolve(const ChildEntry& entry) const;
  void visit(const std::string& prefix, const Visit& visit) const;
  std::vector<NamedTensor> unique(bool parameters) const;
  void list_modules(const std::string& prefix, std::vector<std::pair<std::string, Module*>>& list);
  void unshare(CloneMemo& memo);
  void convert(const std::function<Tensor(const Tensor&)>& function);
  void print(std::string& out, int depth) const;

  std::vector<TensorEntry> tensors_;
  std::vector<ChildEntry> children_;
  std::shared_ptr<Copies> copies_;  // null unless this is, or is a copy of, a registered member
  bool training_ = true;
};

// The base of modules whose forward takes other arguments than one tensor. Gives them operator():
//
//   struct Attention : nn::Callable<Attention> {
//     Tensor forward(const Tensor& query, const Tensor& key, const Tensor& mask = {});
//   };
//   attention(x, y)
template <class M>
class Callable : public Module {
 public:
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return static_cast<M&>(*this).forward(std::forward<Args>(args)...);
  }
};

// Returns a copy of the module with its own parameters and buffers, of the same values. Tied
// tensors stay tied.
template <class M>
M clone(const M& module) {
  static_assert(std::is_base_of_v<Module, M>, "clone takes a module");
  Module::check_parts<M>(module);
  M copy(module);
  Module::CloneMemo memo;
  static_cast<Module&>(copy).unshare(memo);
  return copy;
}

std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace mytorch::nn
