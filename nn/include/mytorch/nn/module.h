// The base class of all modules.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/nn/hooks.h"       // IWYU pragma: export
#include "mytorch/nn/named_list.h"  // IWYU pragma: export
#include "mytorch/nn/serialize.h"
#include "mytorch/owned.h"
#include "mytorch/std_function.h"
#include "mytorch/tensor.h"
#include "mytorch/thread_state.h"

namespace mytorch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace mytorch::serialize

namespace mytorch {
class StateCell;
}

namespace mytorch::nn {

class AnyModule;
class Module;
class NamedAny;
namespace utils::parametrize {
class Registration;
}  // namespace utils::parametrize
template <class M, class Base = Module>
class Callable;

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

struct ParameterAccess;

class AnyHolder {};
[[noreturn]] void fail_empty_holder(const std::type_info& type);

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
//
// Members may also be assigned what they are registered with, as in libtorch:
//
//   nn::Linear hidden{nullptr};
//   Net() { hidden = register_module("hidden", nn::Linear(784, 32)); }
class Module : private detail::Forwards {
 public:
  // An empty module, to be assigned before it is used: `nn::Linear hidden{nullptr};`.
  Module(std::nullptr_t);  // NOLINT: as libtorch's
  bool is_empty() const { return empty_; }
  ~Module() override;

  // Computes the module's output. A module declares forward with `const Tensor&` or `Tensor`, const
  // or not. Modules whose forward takes other arguments derive from Callable. The second parameter
  // keeps this function from being one of those that modules override.
  Tensor forward(const Tensor& input, Unused /*unused*/ = {}) {
    compute_parametrized();
    return call_forward(input);
  }
#pragma GCC diagnostic pop
  // Calls forward and the hooks. The message of an Error ends with the path of the module that
  // threw it: "(in Net.layer2.0.conv1: Conv2d(3, 16, kernel_size=3, stride=1))".
  Tensor operator()(const Tensor& input);
  template <class... Args>
  requires(sizeof...(Args) != 1 || !(std::is_convertible_v<Args&&, const Tensor&> && ...)) void
  operator()(Args&&...) {
    static_assert(sizeof...(Args) == 1,
                  "operator() of a Module takes one tensor: derive the class from "
                  "nn::Callable<Class> to call its forward of other arguments");
    static_assert(sizeof...(Args) != 1,
                  "operator() of a Module takes a tensor: write tensor(3) for a number, or derive "
                  "the class from nn::Callable<Class> to call its forward of another type");
  }

  // -- contents, in the order of registration: own members first, then those of children. A tensor
  // that occurs more than once is listed once, under its first name ("hidden.weight") --
  // Without `recurse`, only own members are listed.
  std::vector<Tensor> parameters(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;
  NamedList<Tensor> named_parameters(bool recurse = true) const;
  NamedList<Tensor> named_buffers(bool recurse = true) const;
  NamedList<Module*> named_children();
  std::vector<Module*> children();
  // Return this module, as `prefix`, and all its descendants.
  NamedList<Module*> named_modules(const std::string& prefix = "", bool include_self = true);
  std::vector<Module*> modules(bool include_self = true);
  // Call the function with this module and all its descendants, children first. The second gives it
  // the names of named_modules(prefix), too.
  void apply(const std::function<void(Module&)>& function);
  void apply(const std::function<void(const std::string&, Module&)>& function,
             const std::string& prefix = "");
  int64_t num_parameters(bool trainable_only = false) const;  // number of elements

  // -- state: parameters and persistent buffers by name --
  // Returns tensors that share the module's memory.
  TensorMap state_dict() const;
  // Copies the values of `state` into the module's tensors. Throws Error(kValue), listing names
  // without a counterpart, if `strict`, and Error(kShape), listing the shapes, if shapes differ.
  // Changes nothing if it throws.
  LoadReport load_state_dict(const TensorMap& state, bool strict = true);
  // Save the state to a safetensors file, and load it, also from an index or a folder, as
  // load_safetensors() does. A failing `save` leaves an existing file unchanged.
  void save(const std::string& path) const;
  LoadReport load(const std::string& path, bool strict = true);
  // The same with a libtorch archive.
  void save(serialize::OutputArchive& archive) const;
  void load(const serialize::InputArchive& archive);

  // -- modes and conversion --
  // Sets training or evaluation mode of this module and its descendants; affects Dropout and
  // BatchNorm.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const {
    if ((thread_state.wanted & kLayerCapture) != 0) [[unlikely]]
      note_mode_read();
    return training_;
  }
  bool is_training() const { return training(); }  // libtorch's name
  void requires_grad(bool on);                     // sets requires_grad of all parameters
  // Clears the gradients of all parameters or, unless `set_to_none`, fills them with zeros.
  void zero_grad(bool set_to_none = true);
  // Move or convert parameters, their gradients, and buffers, in place: the tensors stay the same
  // and take other data (Tensor::set_data), so optimizers go on training them. A real dtype applies
  // to floating-point tensors, a complex one to these and to complex ones. `non_blocking` is that
  // of Tensor::to.
  void to(Device device, bool non_blocking = false);
  void to(ScalarType dtype, bool non_blocking = false);
  void to(Device device, ScalarType dtype, bool non_blocking = false);

  // -- hooks: functions that operator() calls. They may return a tensor, which replaces the input,
  // the output or the gradient of the input. A copy of the module shares its hooks. For forwards of
  // other types, the input is the first argument and the output the first element of the result,
  // or its member `output`; each is undefined if it is not a tensor --
  // hook(Module& module, const Tensor& input), before forward.
  template <class F>
  HookHandle register_forward_pre_hook(F hook) {
    static_assert(std::is_invocable_v<F&, Module&, const Tensor&>,
                  "a forward pre-hook takes (nn::Module& module, const Tensor& input)");
    return add_pre_hook(detail::as_hook<Module&, const Tensor&>(std::move(hook)));
  }
  // hook(Module& module, const Tensor& input, const Tensor& output), after forward.
  template <class F>
  HookHandle register_forward_hook(F hook) {
    static_assert(std::is_invocable_v<F&, Module&, const Tensor&, const Tensor&>,
                  "a forward hook takes (nn::Module& module, const Tensor& input, const Tensor& "
                  "output)");
    return add_forward_hook(
        detail::as_hook<Module&, const Tensor&, const Tensor&>(std::move(hook)));
  }
  // hook(const Tensor& grad_input, const Tensor& grad_output), in backward. grad_input is undefined
  // if the input requires no gradient.
  template <class F>
  HookHandle register_full_backward_hook(F hook) {
    static_assert(std::is_invocable_v<F&, const Tensor&, const Tensor&>,
                  "a backward hook takes (const Tensor& grad_input, const Tensor& grad_output)");
    return add_backward_hook(detail::as_hook<const Tensor&, const Tensor&>(std::move(hook)));
  }

  // Computes the parametrized members from their originals (nn/parametrize.h). operator() and the
  // arrow of a layer call it.
  void compute_parametrized() {
    note_use();
    if (parametrized_) [[unlikely]]
      compute_members();
  }

  // Tells compiled functions that use this module that it has changed, or was replaced: they are
  // recorded again. Nothing happens if none uses it, or if one changes it itself.
  void note_change() {
    if (recorded_.load(std::memory_order_relaxed)) [[unlikely]]
      forget_recordings();
  }

  // Returns the floating-point operations of one forward of this module alone, without its
  // children's, for nn::summary. A multiplication and its addition are two.
  virtual double flops(const Tensor& input, const Tensor& output) const;

  // Returns this module as class M, or null if it is none.
  template <class M>
  M* as() {
    return dynamic_cast<M*>(this);
  }
  template <class M>
  const M* as() const {
    return dynamic_cast<const M*>(this);
  }
  // Modules are values that take the arrow, also where their class is not known:
  // `list[0]->as<M>()`.
  Module* operator->() {
    compute_parametrized();
    return this;
  }
  const Module* operator->() const { return this; }

  // -- printing --
  std::string str() const;   // the tree of modules
  std::string name() const;  // the name that the constructor was given, or the class name
  // Returns one line for str(): the name and, if overridden, the options.
  virtual std::string describe() const;
  // Writes that line; libtorch's programs override it in place of `describe`.
  virtual void pretty_print(std::ostream& out) const;

 protected:
  // Converts to the registered tensor, and registers it by value instead of as a member: whether
  // the variable is one is not known, and a local of the constructor soon is gone.
  class RegisteredTensor {
   public:
    operator Tensor&() &&;  // NOLINT(google-explicit-constructor)

   private:
    friend class Module;
    RegisteredTensor(Module& module, size_t index) : module_(module), index_(index) {}
    Module& module_;
    size_t index_;
  };

  Module();
  // Of a name. A template, so that options in braces are no text.
  template <class Name>
  requires(std::is_convertible_v<const Name&, std::string> && !std::is_same_v<Name, Module> &&
           !std::is_null_pointer_v<Name>) explicit Module(const Name& name)
      : Module() {
    own_name_ = name;
  }
  Module(const Module& other);
  Module(Module&& other) noexcept;
  Module& operator=(const Module& other);
  Module& operator=(Module&& other) noexcept;

  // Each registers a member of the class under a name that is unique in this module and contains no
  // '.'. Undefined tensors are ignored until they are assigned. Throws Error(kValue) for a module
  // that lies too far from this object to be a member; such a tensor is registered by value.
  RegisteredTensor register_parameter(std::string name, Tensor& member);  // and requires_grad_()
  RegisteredTensor register_buffer(std::string name, Tensor& member, bool persistent = true);
  // Register a tensor and return it, for a member: `scale = register_parameter("scale", ones(4))`.
  // The member is not to be assigned another tensor, which would not be registered. The same holds
  // if the results of the two above are used, whose argument then may be any variable.
  Tensor register_parameter(std::string name, const Tensor& value, bool requires_grad = true);
  Tensor register_buffer(std::string name, const Tensor& value, bool persistent = true);
  template <class M>
  requires(std::is_base_of_v<Module, M>) void register_module(std::string name, M& member) {
    check_parts<M>(member);
    add_member(std::move(name), member);
  }
  // Registers a module and returns it, for a member: `fc = register_module("fc", Linear(4, 8))`.
  // The member that is assigned or initialized becomes the registered one. If none is, this object
  // holds the module, as if by a shared_ptr.
  template <class M>
  requires(std::is_base_of_v<Module, M> && !std::is_const_v<M>) M
      register_module(std::string name, M&& module) {
    auto held = std::make_shared<M>(std::forward<M>(module));
    check_parts<M>(*held);
    add_value(std::move(name), held, copier<M>());
    return M(*held);
  }
  // Register a child held by pointer, which copies of this module share, and return the pointer.
  template <class M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> module) {
    if (module != nullptr) check_parts<M>(*module);
    add_shared(std::move(name), module, copier<M>());
    return module;
  }
  template <class Holder>
  requires(std::is_base_of_v<detail::AnyHolder, Holder>) Holder
      register_module(std::string name, Holder holder) {
    register_module(std::move(name), holder.ptr());
    return holder;
  }
  // Removes a child. Throws Error(kValue), listing the names, if there is no such child.
  void unregister_module(const std::string& name);

  // For containers: the modules are held by pointer.
  void register_any(NamedAny module);
  void replace_any(NamedAny module);                   // or registers it, if no child has its name
  void register_children_of(const Module& container);  // in addition, under their numbers
  // Moves the last child before the child `index`, and renames children that are named by number.
  void place_last_child(size_t index);
  std::shared_ptr<Module> shared_child(size_t index) const {
    note_use();
    return children_[index].shared;
  }
  void remove_children() {
    note_change();
    children_.clear();
  }
  // Registers a parameter that is not a member, for containers of parameters. References to it are
  // valid until the next registration.
  void hold_parameter(std::string name, Tensor parameter);
  Tensor& held_parameter(size_t index) {
    note_use();
    return resolve(tensors_[index]);
  }
  const Tensor& held_parameter(size_t index) const {
    note_use();
    return resolve(tensors_[index]);
  }
  const std::string& held_name(size_t index) const { return tensors_[index].name; }
  size_t num_held() const {
    note_use();
    return tensors_.size();
  }
  void remove_held(size_t index) {
    note_change();
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  const std::string& child_name(size_t index) const { return children_[index].name; }
  Module& child(size_t index) {
    note_use();
    return resolve(children_[index]);
  }
  const Module& child(size_t index) const {
    note_use();
    return resolve(children_[index]);
  }
  size_t num_children() const {
    note_use();
    return children_.size();
  }

  // A lazy module registers undefined parameters, and defines them in the first forward, as float32
  // tensors on the CPU; finish_lazy converts them to the type and device of the input. Until then,
  // whatever needs the parameters throws Error(kValue).
  void set_lazy() { lazy_ = true; }
  bool lazy() const { return lazy_; }
  void finish_lazy(const Tensor& input);
  // Returns the size of a dimension, counted from the end if negative. Throws Error(kShape) if it
  // does not exist.
  int64_t lazy_size(const Tensor& input, int64_t dim) const;

  // For operator() of derived classes.
  bool has_hooks() const { return hooks_ != nullptr; }
  void check_not_empty() const {
    if (empty_) [[unlikely]]
      fail_empty();
  }
  Tensor before_forward(const Tensor& input);
  Tensor after_forward(const Tensor& input, const Tensor& output);
  [[noreturn]] void fail_empty() const;
  // Throws the Error that is being handled, with the path of the module that threw it.
  [[noreturn]] void rethrow_with_path() const;

 private:
  friend class AnyModule;
  friend class NamedAny;
  friend class utils::parametrize::Registration;
  friend struct detail::ParameterAccess;
  template <class M>
  friend M clone(const M& module);

  enum class Role { kParameter, kBuffer, kTransientBuffer };
  struct TensorEntry {
    std::string name;
    std::ptrdiff_t place;  // offset of the member from this Module, in bytes
    Role role;
    bool held = false;  // not a member, but `tensor`
    Tensor tensor = {};
    // Whether a parametrization computes the tensor, which then is no part of the state; if it is
    // held, the offsets of the members that have it, too.
    bool computed = false;
    std::vector<std::ptrdiff_t> members = {};
  };
  // The bytes of the object that a module is a part of.
  struct Extent {
    const void* begin = nullptr;
    size_t bytes = 0;
    bool contains(const void* place) const;
  };
  struct Copied {
    std::shared_ptr<Module> module;
    Extent extent = {};
  };
  using Copy = Copied (*)(const Module&);
  // The addresses of a registered member and of the modules that were copied or moved from it.
  class Copies;
  struct ChildEntry {
    std::string name;
    std::ptrdiff_t place = 0;          // offset, for a member
    std::shared_ptr<Copies> copies;    // of a member, or of a module registered by value
    std::shared_ptr<Copies> assigned;  // as `copies`, of an object that this one was assigned
    std::shared_ptr<Module> shared;    // set for a child held by pointer or registered by value
    Copy copy = nullptr;               // copies such a child
  };
  // Notes the modules that this thread copies during its lifetime.
  class CloneMemo;
  class Cloning {
   public:
    Cloning();
    ~Cloning();
    Cloning(const Cloning&) = delete;
    Cloning& operator=(const Cloning&) = delete;
    // Gives `copy`, which was copied since, parameters of its own.
    void finish(Module& copy, const Extent& extent) const;

   private:
    Owned<CloneMemo> memo_;
  };
  using Visit = std::function<void(const std::string& name, Tensor& tensor, Role role)>;

  // Returns null if M is not copyable. The copier returns null if the object's class is not M.
  template <class M>
  static Copy copier() {
    if constexpr (std::is_copy_constructible_v<M> && !std::is_abstract_v<M>) {
      return [](const Module& module) -> Copied {
        if (typeid(module) != typeid(M)) return {};
        auto copy = std::make_shared<M>(static_cast<const M&>(module));
        const Extent extent{copy.get(), sizeof(M)};
        return {std::move(copy), extent};
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
  bool is_near(const void* member) const;
  [[noreturn]] void fail_outside(const std::string& name) const;
  HookHandle add_pre_hook(std::function<Tensor(Module&, const Tensor&)> hook);
  HookHandle add_forward_hook(std::function<Tensor(Module&, const Tensor&, const Tensor&)> hook);
  HookHandle add_backward_hook(std::function<Tensor(const Tensor&, const Tensor&)> hook);
  detail::Hooks& own_hooks();
  bool find_path(const Module* module, std::string& path) const;
  void add_member(std::string name, Module& member);
  void add_shared(std::string name, std::shared_ptr<Module> module, Copy copy);
  void add_value(std::string name, std::shared_ptr<Module> module, Copy copy);
  static void start_copies(Module& module);
  static const std::shared_ptr<Copies>& record(const ChildEntry& entry);
  TensorEntry& add_tensor(std::string name, Tensor value, Role role);
  RegisteredTensor add_tensor_at(std::string name, Tensor& tensor, Role role);
  void check_name(const std::string& name) const;
  Tensor& resolve(const TensorEntry& entry) const;
  Module& resolve(const ChildEntry& entry) const;
  void visit(const std::string& prefix, const Visit& visit, bool recurse = true) const;
  NamedList<Tensor> unique(bool parameters, bool recurse) const;
  void list_modules(const std::string& prefix, NamedList<Module*>& list);
  void unshare(CloneMemo& memo, const Extent& extent);
  void unshare_child(CloneMemo& memo, const Extent& extent, ChildEntry& entry);
  void compute_members();
  // Notes that a function that is being recorded depends on what the module consists of.
  void note_use() const {
    if ((thread_state.wanted & kLayerCapture) != 0) [[unlikely]]
      recorded_.store(true, std::memory_order_relaxed);
  }
  void forget_recordings();
  // Note what a function that is being recorded does with the mode.
  void note_mode_read() const;
  void note_made();
  void set_mode(bool training);
  const std::shared_ptr<StateCell>& recorded_mode() const;
  static void replace_members(const Extent& extent, const Tensor& from, const Tensor& to);
  void convert(const std::function<Tensor(const Tensor&)>& function);
  void convert_computed(const std::function<Tensor(const Tensor&)>& function);
  void set_computed(TensorEntry& entry, const Tensor& value);
  std::string label() const;
  void print(std::string& out, int depth) const;

  std::string own_name_;  // if the constructor was given one
  std::vector<TensorEntry> tensors_;
  std::vector<ChildEntry> children_;
  std::shared_ptr<Copies> copies_;  // null unless this is, or is a copy of, a registered member
  std::shared_ptr<detail::Hooks> hooks_;  // null without hooks
  // The mode, for compiled functions; null if none has read or set it.
  class RecordedMode;
  mutable std::shared_ptr<StateCell> recorded_mode_;
  bool training_ = true;
  bool lazy_ = false;
  bool empty_ = false;
  bool parametrized_ = false;  // whether an entry of tensors_ is computed
  // Whether a compiled function has used the module since its last change.
  mutable std::atomic<bool> recorded_{false};
};

// Returns a copy of the module with its own parameters and buffers, of the same values. Tied
// tensors stay tied.
template <class M>
M clone(const M& module) {
  static_assert(std::is_base_of_v<Module, M>,
                "nn::clone takes a module: write x.clone() for a tensor");
  Module::check_parts<M>(module);
  const Module::Cloning cloning;
  M copy(module);
  cloning.finish(copy, {&copy, sizeof(M)});
  return copy;
}

std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace mytorch::nn

#include "mytorch/nn/layer.h"          // IWYU pragma: export
#include "mytorch/nn/module_holder.h"  // IWYU pragma: export
