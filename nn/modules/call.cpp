// Calls of modules: the forms of forward, paths in errors, hooks.
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/module.h"
#include "mytorch/ops/alias.h"
#include "mytorch/options_epoch.h"
#include "nn/modules/names.h"
#include "nn/parameter_access.h"
#include "nn/split.h"

namespace mytorch::nn {

namespace detail {

// A pointer to a member selects one of the functions; the call is virtual.
Tensor Forwards::call_forward(const Tensor& input) {
  return (this->*static_cast<Tensor (Forwards::*)(const Tensor&)>(&Forwards::forward))(input);
}

Tensor Forwards::forward(const Tensor& input) {
  return (this->*static_cast<Tensor (Forwards::*)(Tensor)>(&Forwards::forward))(input);
}

Tensor Forwards::forward(Tensor input) {
  return (this->*static_cast<Tensor (Forwards::*)(const Tensor&) const>(&Forwards::forward))(input);
}

Tensor Forwards::forward(const Tensor& input) const {
  return (this->*static_cast<Tensor (Forwards::*)(Tensor) const>(&Forwards::forward))(input);
}

Tensor Forwards::forward(Tensor /*input*/) const {
  fail(ErrorCode::kUnsupported, "[", class_name(typeid(*this)),
       "] has no forward of one tensor: declare `Tensor forward(const Tensor& x)`, or derive from "
       "nn::Callable if forward takes other arguments");
}

struct Hooks {
  template <class F>
  using List = std::vector<std::pair<int64_t, std::function<F>>>;
  List<Tensor(Module&, const Tensor&)> before;
  List<Tensor(Module&, const Tensor&, const Tensor&)> after;
  List<Tensor(const Tensor&, const Tensor&)> backward;
  std::shared_ptr<const Split> split;  // of the module's work; null for most
  int64_t last_id = 0;
  std::atomic<bool> recorded{false};  // whether a compiled function has called them

  // Has these functions recorded again, unless one changes the hooks itself.
  void changed() {
    if (!recorded || (thread_state.wanted & kLayerCapture) != 0) return;
    recorded = false;
    options_changed();
  }
};

}  // namespace detail

namespace {

// An Error with the path of the module that threw it.
class LocatedError final : public Error {
 public:
  // `path` is that of the module, relative to `root`.
  LocatedError(const Error& original, const Module* root, std::string path, std::string thrower)
      : Error(original.code(), message(original, *root, path, thrower)),
        original_(original),
        root_(root),
        path_(std::move(path)),
        thrower_(std::move(thrower)) {}
  const Module* root() const { return root_; }
  // Returns the same error, seen from a module that contains the root at `path`.
  LocatedError from(const Module* outer, const std::string& path) const {
    return {original_, outer, path_.empty() ? path : join(path, path_), thrower_};
  }

 private:
  static std::string message(const Error& original, const Module& root, const std::string& path,
                             const std::string& thrower) {
    if (path.empty()) return absl::StrCat(original.what(), " (in ", thrower, ")");
    return absl::StrCat(original.what(), " (in ", class_name(root), ".", path, ": ", thrower, ")");
  }

  Error original_;
  const Module* root_;
  std::string path_;
  std::string thrower_;
};

// In anomaly mode, makes the call of a module a scope: by its class, or within the call of another
// module by its path there.
class CallScope {
 public:
  explicit CallScope(Module& module) {
    if (autograd::AnomalyMode::is_enabled()) [[unlikely]]
      enter(module);
  }
  ~CallScope() {
    if (scope_.has_value()) running_ = outer_;
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  void enter(Module& module) {
    name_ = class_name(module);
    if (running_ != nullptr) {
      for (auto& [path, part] : running_->named_modules()) {
        if (part == &module && !path.empty()) name_ = path;
      }
    }
    scope_.emplace(name_);
    outer_ = std::exchange(running_, &module);
  }

  std::string name_;
  std::optional<autograd::NameScope> scope_;
  Module* outer_ = nullptr;
  static thread_local Module* running_;
};
thread_local Module* CallScope::running_ = nullptr;

}  // namespace

Tensor Module::operator()(const Tensor& input) {
  const CallScope scope(*this);
  try {
    check_not_empty();
    compute_parametrized();
    if (hooks_ == nullptr) return call_forward(input);
    const Tensor hooked = before_forward(input);
    return after_forward(hooked, call_forward(hooked));
  } catch (const Error&) {
    rethrow_with_path();
  }
}

bool Module::find_path(const Module* module, std::string& path) const {
  for (const ChildEntry& entry : children_) {
    const Module& child = resolve(entry);
    std::string rest;
    if (&child == module || child.find_path(module, rest)) {
      path = rest.empty() ? entry.name : join(entry.name, rest);
      return true;
    }
  }
  return false;
}

void Module::rethrow_with_path() const {
  try {
    throw;
  } catch (const LocatedError& error) {
    std::string path;
    if (!find_path(error.root(), path)) throw;  // of a module that is not a part of this one
    throw error.from(this, path);
  } catch (const Error& error) {
    throw LocatedError(error, this, "", children_.empty() ? label() : class_name(*this));
  }
}

// ---- hooks ----

void HookHandle::remove() {
  const std::shared_ptr<detail::Hooks> hooks = hooks_.lock();
  if (hooks == nullptr) return;
  const auto drop = [this](auto& list) {
    std::erase_if(list, [this](const auto& hook) { return hook.first == id_; });
  };
  hooks->changed();
  drop(hooks->before);
  drop(hooks->after);
  drop(hooks->backward);
}

bool detail::ParameterAccess::shares_hooks(const Module& module) {
  return module.hooks_.use_count() > 1;
}
const Split* detail::ParameterAccess::split(const Module& module) {
  return module.hooks_ == nullptr ? nullptr : module.hooks_->split.get();
}
void detail::ParameterAccess::set_split(Module& module, std::shared_ptr<const Split> split) {
  module.own_hooks().split = std::move(split);
}
const Split* split_of(const Module& module) { return detail::ParameterAccess::split(module); }
void set_split(Module& module, std::shared_ptr<const Split> split) {
  detail::ParameterAccess::set_split(module, std::move(split));
}

detail::Hooks& Module::own_hooks() {
  note_change();
  if (hooks_ == nullptr) hooks_ = std::make_shared<detail::Hooks>();
  hooks_->changed();
  return *hooks_;
}

HookHandle Module::add_pre_hook(std::function<Tensor(Module&, const Tensor&)> hook) {
  const int64_t id = ++own_hooks().last_id;
  hooks_->before.emplace_back(id, std::move(hook));
  return {hooks_, id};
}

HookHandle Module::add_forward_hook(
    std::function<Tensor(Module&, const Tensor&, const Tensor&)> hook) {
  const int64_t id = ++own_hooks().last_id;
  hooks_->after.emplace_back(id, std::move(hook));
  return {hooks_, id};
}

HookHandle Module::add_backward_hook(std::function<Tensor(const Tensor&, const Tensor&)> hook) {
  const int64_t id = ++own_hooks().last_id;
  hooks_->backward.emplace_back(id, std::move(hook));
  return {hooks_, id};
}

// Hooks may remove themselves or each other while they run, so copies of the lists run. An input
// with backward hooks becomes a view, whose gradient is that of this call alone.
Tensor Module::before_forward(const Tensor& input) {
  const std::shared_ptr<detail::Hooks> hooks = hooks_;
  if ((thread_state.wanted & kLayerCapture) != 0) hooks->recorded = true;
  Tensor result = input;
  for (const auto& [id, hook] : std::vector(hooks->before)) {
    if (Tensor replaced = hook(*this, result); replaced.defined()) result = std::move(replaced);
  }
  const bool view = !hooks->backward.empty() && result.defined() && result.requires_grad();
  return view && grad_enabled() ? alias(result) : result;
}

Tensor Module::after_forward(const Tensor& input, const Tensor& output) {
  const std::shared_ptr<detail::Hooks> hooks = hooks_;
  Tensor result = output;
  for (const auto& [id, hook] : std::vector(hooks->after)) {
    if (Tensor replaced = hook(*this, input, result); replaced.defined()) {
      result = std::move(replaced);
    }
  }
  if (hooks->backward.empty() || !result.defined() || !result.requires_grad()) return result;
  if (result.is_leaf() || result.is_same(input)) result = alias(result);
  const auto run = [hooks](const Tensor& grad_input, const Tensor& grad_output) {
    Tensor grad = grad_input;
    for (const auto& [id, hook] : std::vector(hooks->backward)) {
      if (Tensor replaced = hook(grad, grad_output); replaced.defined()) grad = std::move(replaced);
    }
    return grad;
  };
  if (!input.defined() || !input.requires_grad()) {
    result.register_hook([run](const Tensor& grad_output) {
      run({}, grad_output);
      return Tensor();
    });
    return result;
  }
  const auto grad_output = std::make_shared<Tensor>();
  result.register_hook([grad_output](const Tensor& grad) {
    *grad_output = grad;
    return Tensor();
  });
  input.register_hook(
      [run, grad_output](const Tensor& grad_input) { return run(grad_input, *grad_output); });
  return result;
}

}  // namespace mytorch::nn
