// The base of everything with parameters.
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

// What load_state_dict found in only one of the two.
struct LoadReport {
  std::vector<std::string> missing;     // of the module, not in the dictionary
  std::vector<std::string> unexpected;  // in the dictionary, not of the module
};

// A part of a model: tensors that are trained (parameters), tensors that belong to it but are not
// (buffers), and other modules (children), each under a name. Modules are ordinary classes, and
// their parts ordinary members:
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
// A copy of a module has the same parameters, as a copy of a Tensor has the same memory; `clone`
// gives one with parameters of its own. What is registered is found by its place in the object, so
// copies and moves need no registration of their own, and a member may be assigned: `decoder.weight
// = encoder.weight` ties the two. The one thing to avoid is to copy only a base of a module's
// class.
class Module {
 public:
  virtual ~Module() = default;

  // What the module computes. Modules of other arguments declare a forward of their own beside it.
  virtual Tensor forward(const Tensor& input);
  Tensor operator()(const Tensor& input) { return forward(input); }

  // -- what it consists of, in the order of registration, children after its own; a tensor that
  // occurs more than once is listed once, under its first name ("hidden.weight") --
  std::vector<Tensor> parameters() const;
  std::vector<NamedTensor> named_parameters() const;
  std::vector<NamedTensor> named_buffers() const;
  std::vector<std::pair<std::string, Module*>> named_children();
  // Itself, as "", then its children and theirs.
  std::vector<std::pair<std::string, Module*>> named_modules();
  void apply(const std::function<void(Module&)>& function);   // to children first, then to itself
  int64_t num_parameters(bool trainable_only = false) const;  // elements

  // -- its state: parameters and persistent buffers by name --
  // The tensors share the module's memory.
  TensorMap state_dict() const;
  // Copies values into the module's own tensors. Nothing is changed unless everything fits: Error
  // (kValue) lists names without counterpart if `strict`, Error(kShape) the shapes that differ.
  LoadReport load_state_dict(const TensorMap& state, bool strict = true);
  // The same to and from a safetensors file; `save` leaves an older file alone unless it succeeds.
  void save(const std::string& path) const;
  LoadReport load(const std::string& path, bool strict = true);

  // -- how it computes --
  // Training or evaluation, of itself and its children: Dropout and BatchNorm differ.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }
  void requires_grad(bool on);  // of all parameters
  void zero_grad();             // forgets the gradients of all parameters
  // Moves or converts parameters and buffers; of a dtype only floating ones are converted. They are
  // then other tensors: do this before giving parameters() to an optimizer.
  void to(Device device);
  void to(ScalarType dtype);
  void to(Device device, ScalarType dtype);

  // -- for people --
  std::string str() const;  // the tree of modules
  // One line for str(): the name of the class, and its options where a class adds them.
  virtual std::string describe() const;

 protected:
  Module() = default;
  Module(const Module&) = default;
  Module(Module&&) = default;
  Module& operator=(const Module&) = default;
  Module& operator=(Module&&) = default;

  // Each takes a member of the class, under a name that is new in this module and without '.'.
  // Undefined tensors are passed over until they are assigned.
  void register_parameter(std::string name, Tensor& member);  // makes it require grad
  void register_buffer(std::string name, Tensor& member, bool persistent = true);
  void register_module(std::string name, Module& member);
  // A child held by pointer: copies of this module share it.
  template <class M>
  void register_module(std::string name, std::shared_ptr<M> module) {
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
    std::ptrdiff_t place;  // of the member, in bytes from this Module
    Role role;
  };
  using Copy = std::shared_ptr<Module> (*)(const Module&);
  struct ChildEntry {
    std::string name;
    std::ptrdiff_t place = 0;        // of a member
    std::shared_ptr<Module> shared;  // or a child held by pointer
    Copy copy = nullptr;             // of such a child
  };
  struct CloneMemo {
    std::map<const void*, Tensor> tensors;
    std::map<const void*, std::shared_ptr<Module>> modules;
  };
  using Visit = std::function<void(const std::string& name, Tensor& tensor, Role role)>;

  // Null where a copy would lose the class of the object or there is none.
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
  bool training_ = true;
};

// The same module with parameters and buffers of its own, of the same values; what is tied stays
// tied.
template <class M>
M clone(const M& module) {
  static_assert(std::is_base_of_v<Module, M>, "clone takes a module");
  M copy(module);
  Module::CloneMemo memo;
  static_cast<Module&>(copy).unshare(memo);
  return copy;
}

std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace mytorch::nn
