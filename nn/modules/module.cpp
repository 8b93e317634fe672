#include "mytorch/nn/module.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <ostream>
#include <set>
#include <unordered_set>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/to.h"
#include "mytorch/options_epoch.h"
#include "nn/modules/names.h"
#include "nn/parameter_access.h"

namespace mytorch::nn {
namespace {

// Computed with integers, because a member of a derived class lies outside its Module base.
std::ptrdiff_t distance(const void* from, const void* to) {
  return static_cast<std::ptrdiff_t>(reinterpret_cast<uintptr_t>(to) -
                                     reinterpret_cast<uintptr_t>(from));
}

template <class T>
T& at_distance(const void* from, std::ptrdiff_t place) {
  return *reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(place));
}

// Makes a converted tensor a leaf that requires grad if the original did.
Tensor as_leaf(Tensor tensor, bool requires_grad) {
  if (requires_grad) tensor.requires_grad_();
  return tensor;
}

}  // namespace

// ---- members ----

class Module::Copies {
 public:
  void add(const Module* module) {
    std::lock_guard<std::mutex> lock(mutex_);
    modules_.insert(module);
  }
  void remove(const Module* module) {
    std::lock_guard<std::mutex> lock(mutex_);
    modules_.erase(module);
  }
  bool empty() {
    std::lock_guard<std::mutex> lock(mutex_);
    return modules_.empty();
  }
  bool contains(const Module* module) {
    std::lock_guard<std::mutex> lock(mutex_);
    return modules_.count(module) != 0;
  }
  // Returns the copy that is registered in `owner` by value, or null. Members lie after their
  // owner, so if a copy is a member, so is the nearest copy behind the owner.
  Module* nearest(const Module* owner) {
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

 private:
  std::mutex mutex_;
  std::unordered_set<const Module*> modules_;
};

// The log has the modules in the order in which they were copied: a module, then its members.
class Module::CloneMemo {
 public:
  CloneMemo() : outer_(std::exchange(running_, this)) {}
  ~CloneMemo() { running_ = outer_; }
  CloneMemo(const CloneMemo&) = delete;
  CloneMemo& operator=(const CloneMemo&) = delete;

  static void note(Module* copy) {
    for (CloneMemo* memo = running_; memo != nullptr; memo = memo->outer_) {
      memo->log_.push_back(copy);
    }
  }
  static void forget(const Module* copy) {
    for (CloneMemo* memo = running_; memo != nullptr; memo = memo->outer_) {
      std::erase(memo->log_, copy);
    }
  }

  // Returns the copies of the module registered as `entry` that were made with `owner`.
  std::vector<Module*> copies(const Module* owner, const ChildEntry& entry) const {
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

  std::map<const void*, Tensor> tensors;
  std::map<const void*, std::shared_ptr<Module>> modules;
  std::set<const Module*> done;

 private:
  CloneMemo* outer_;
  std::vector<Module*> log_;
  static thread_local CloneMemo* running_;
};
thread_local Module::CloneMemo* Module::CloneMemo::running_ = nullptr;

Module::Cloning::Cloning() : memo_(new CloneMemo) {}
Module::Cloning::~Cloning() = default;

void Module::Cloning::finish(Module& copy, const Extent& extent) const {
  NoGradGuard no_grad;
  copy.unshare(*memo_, extent);
}

Module::Module() = default;
Module::Module(std::nullptr_t) : empty_(true) {}
Module::Module(const Module& other)
    : Forwards(),
      tensors_(other.tensors_),
      children_(other.children_),
      copies_(other.copies_),
      hooks_(other.hooks_),
      training_(other.training_),
      lazy_(other.lazy_),
      empty_(other.empty_),
      parametrized_(other.parametrized_) {
  if (copies_ != nullptr) copies_->add(this);
  CloneMemo::note(this);
}

// A copy: the members of `other` stay registered, because they may be assigned again.
// NOLINTNEXTLINE(performance-move-constructor-init)
Module::Module(Module&& other) noexcept : Module(std::as_const(other)) {}

Module::~Module() {
  CloneMemo::forget(this);
  if (copies_ != nullptr) copies_->remove(this);
}

// The members of this object stay its own members, also in an assignment to itself.
// NOLINTNEXTLINE(bugprone-unhandled-self-assignment)
Module& Module::operator=(const Module& other) {
  std::vector<ChildEntry> children = other.children_;
  for (ChildEntry& entry : children) {
    for (const ChildEntry& own : children_) {
      const bool same = entry.shared == nullptr ? own.place == entry.place : own.name == entry.name;
      if (own.copies == nullptr || entry.copies == nullptr || !same) continue;
      entry.assigned = record(entry);
      entry.copies = own.copies;
    }
  }
  tensors_ = other.tensors_;
  children_ = std::move(children);
  hooks_ = other.hooks_;
  training_ = other.training_;
  lazy_ = other.lazy_;
  empty_ = other.empty_;
  parametrized_ = other.parametrized_;
  if (copies_ == nullptr && other.copies_ != nullptr) {  // as a copy; see Copies::nearest
    copies_ = other.copies_;
    copies_->add(this);
  }
  return *this;
}

Module& Module::operator=(Module&& other) noexcept { return *this = other; }

// A vector that is assigned may have elements of the other object's vector in place of its own.
const std::shared_ptr<Module::Copies>& Module::record(const ChildEntry& entry) {
  const bool moved = entry.assigned != nullptr && entry.shared != nullptr && entry.copies->empty();
  return moved ? entry.assigned : entry.copies;
}

// ---- registration ----

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
  ChildEntry entry;
  entry.name = std::move(name);
  entry.shared = std::move(module);
  entry.copy = copy;
  children_.push_back(std::move(entry));
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

// ---- lists ----

void Module::visit(const std::string& prefix, const Visit& visit) const {
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
bool detail::ParameterAccess::is_parametrized(const Module& module) { return module.parametrized_; }
const std::string& detail::ParameterAccess::child_name(const Module& module, size_t index) {
  return module.children_[index].name;
}
std::shared_ptr<Module> detail::ParameterAccess::child(const Module& module, size_t index) {
  return module.children_[index].shared;
}

template <class T>
bool NamedList<T>::contains(std::string_view name) const {
  return std::any_of(this->begin(), this->end(),
                     [&](const auto& item) { return item.first == name; });
}

template <class T>
T& NamedList<T>::operator[](std::string_view name) {
  for (NamedItem<T>& item : *this) {
    if (item.first == name) return item.second;
  }
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

template class NamedList<Tensor>;
template class NamedList<Module*>;

NamedList<Tensor> Module::unique(bool parameters) const {
  NamedList<Tensor> list;
  std::set<const void*> seen;
  visit("", [&](const std::string& name, Tensor& tensor, Role role) {
    if ((role == Role::kParameter) != parameters) return;
    if (seen.insert(tensor.impl()).second) list.push_back({name, tensor});
  });
  return list;
}

NamedList<Tensor> Module::named_parameters() const { return unique(true); }
NamedList<Tensor> Module::named_buffers() const { return unique(false); }
std::vector<Tensor> Module::parameters() const { return unique(true).values(); }
std::vector<Tensor> Module::buffers() const { return unique(false).values(); }

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

NamedList<Module*> Module::named_modules() {
  NamedList<Module*> list;
  list_modules("", list);
  return list;
}

std::vector<Module*> Module::modules(bool include_self) {
  std::vector<Module*> list = named_modules().values();
  if (!include_self) list.erase(list.begin());
  return list;
}

void Module::apply(const std::function<void(Module&)>& function) {
  for (const ChildEntry& entry : children_) resolve(entry).apply(function);
  function(*this);
}

int64_t Module::num_parameters(bool trainable_only) const {
  int64_t count = 0;
  for (const Tensor& parameter : parameters()) {
    if (!trainable_only || parameter.requires_grad()) count += parameter.numel();
  }
  return count;
}

// ---- lazy modules ----

int64_t Module::lazy_size(const Tensor& input, int64_t dim) const {
  if (dim < -input.dim() || dim >= input.dim()) {
    fail(ErrorCode::kShape, "[", class_name(*this), "] input ", shape_str(input.sizes()),
         " has no dimension ", dim, ", the number of input features");
  }
  return input.size(dim);
}

void Module::finish_lazy(const Tensor& input) {
  lazy_ = false;
  for (const TensorEntry& entry : tensors_) {
    Tensor& tensor = resolve(entry);
    if (entry.role == Role::kParameter && tensor.defined()) tensor.requires_grad_();
  }
  to(input.device());
  if (input.is_floating_point()) to(input.dtype());
}

// ---- modes and conversions ----

void Module::train(bool on) {
  apply([on](Module& module) {
    if (module.training_ != on) options_changed();
    module.training_ = on;
  });
}

void Module::requires_grad(bool on) {
  for (const Tensor& parameter : parameters()) parameter.requires_grad_(on);
}

void Module::zero_grad() {
  for (const Tensor& parameter : parameters()) parameter.set_grad({});
}

// The values of parametrized members, until they are computed again.
void Module::convert_computed(const std::function<Tensor(const Tensor&)>& function) {
  for (TensorEntry& entry : tensors_) {
    if (entry.computed) set_computed(entry, function(resolve(entry).detach()));
  }
  for (const ChildEntry& entry : children_) resolve(entry).convert_computed(function);
}

// Makes all data before replacing the first, so that an error changes nothing.
void Module::convert(const std::function<Tensor(const Tensor&)>& function) {
  NoGradGuard no_grad;
  struct Converted {
    Tensor data;
    Tensor grad;
    std::vector<Tensor*> places;  // the members that are this tensor
  };
  std::map<const TensorImpl*, Converted> all;
  visit("", [&](const std::string&, Tensor& tensor, Role) {
    const auto [at, is_new] = all.try_emplace(tensor.impl());
    Converted& converted = at->second;
    converted.places.push_back(&tensor);
    if (!is_new) return;
    converted.data = function(tensor);
    if (const Tensor grad = tensor.grad(); grad.defined()) converted.grad = function(grad);
  });
  convert_computed(function);
  for (auto& [impl, converted] : all) {
    Tensor& tensor = *converted.places[0];
    if (converted.data.is_same(tensor)) continue;
    if (tensor.is_view() || !tensor.is_leaf()) {  // a buffer of values that something else computed
      for (Tensor* place : converted.places) *place = converted.data;
      continue;
    }
    tensor.set_grad({});
    tensor.set_data(converted.data);
    tensor.set_grad(converted.grad);
  }
}

void Module::to(Device device) {
  convert([&](const Tensor& tensor) { return mytorch::to(tensor, device); });
}

void Module::to(ScalarType dtype) {
  if (!is_floating_point(dtype)) {
    fail(ErrorCode::kType, "[Module::to] modules have floating-point types, not ",
         dtype_name(dtype));
  }
  convert([&](const Tensor& tensor) {
    return tensor.is_floating_point() ? mytorch::to(tensor, dtype) : tensor;
  });
}

void Module::to(Device device, ScalarType dtype) {
  to(dtype);
  to(device);
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
      at_distance<Tensor>(extent.begin, place) = to;
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
    tensor = at->second;
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

double Module::flops(const Tensor& /*input*/, const Tensor& /*output*/) const { return 0; }

// ---- text ----

// Empty modules have no options to describe.
std::string Module::label() const {
  return empty_ ? absl::StrCat(class_name(*this), "(nullptr)") : describe();
}

void Module::fail_empty() const {
  fail(ErrorCode::kValue, "[", class_name(*this),
       "] the module is empty, because it was made from nullptr: assign a layer before its use");
}

void detail::fail_empty_holder(const std::type_info& type) {
  fail(ErrorCode::kValue, "[", class_name(type),
       "] the holder is empty, because it was made from nullptr: assign a module before its use");
}

std::string Module::name() const { return class_name(*this); }

std::string Module::describe() const { return absl::StrCat(class_name(*this), "()"); }

void Module::print(std::string& out, int depth) const {
  std::string line = label();
  if (children_.empty()) {
    out += line;
    return;
  }
  if (!line.empty() && line.back() == ')') line.pop_back();
  absl::StrAppend(&out, line, line.empty() || line.back() == '(' ? "" : ",", "\n");
  const std::string indent(2 * static_cast<size_t>(depth + 1), ' ');
  for (const ChildEntry& entry : children_) {
    absl::StrAppend(&out, indent, "(", entry.name, "): ");
    resolve(entry).print(out, depth + 1);
    out += '\n';
  }
  out.append(2 * static_cast<size_t>(depth), ' ');
  out += ')';
}

std::string Module::str() const {
  std::string text;
  print(text, 0);
  return text;
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << module.str(); }

}  // namespace mytorch::nn
