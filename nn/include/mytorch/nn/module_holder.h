// Pointers to modules. The last part of mytorch/nn/module.h.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "mytorch/nn/layer.h"
#include "mytorch/nn/module.h"

namespace mytorch::nn {

// A shared pointer to a module that calls it, as in libtorch. MYTORCH_MODULE(Net) defines Net, the
// holder of NetImpl:
//
//   struct NetImpl : nn::Module { ... };
//   MYTORCH_MODULE(Net);
//   Net net(784, 10);
//   net->forward(x);
template <class Impl>
class ModuleHolder : public detail::AnyHolder {
 public:
  using ContainedType = Impl;
  ModuleHolder(std::nullptr_t) {}                                           // NOLINT: as a pointer
  ModuleHolder(std::shared_ptr<Impl> module) : impl_(std::move(module)) {}  // NOLINT
  template <class... Args>
  requires(std::is_constructible_v<Impl, Args...> &&
           !(std::is_base_of_v<AnyHolder, std::decay_t<Args>> ||
             ...)) explicit ModuleHolder(Args&&... args)
      : impl_(std::make_shared<Impl>(std::forward<Args>(args)...)) {}

  ModuleHolder(const ModuleHolder& other) = default;
  ModuleHolder(ModuleHolder&& other) noexcept = default;
  // Compiled functions notice that a holder refers to another module.
  ModuleHolder& operator=(const ModuleHolder& other) { return *this = ModuleHolder(other); }
  ModuleHolder& operator=(ModuleHolder&& other) noexcept {
    if constexpr (std::is_base_of_v<Module, Impl>) {
      if (impl_ != nullptr && impl_ != other.impl_) impl_->Module::note_change();
    }
    impl_ = std::move(other.impl_);
    return *this;
  }
  ~ModuleHolder() = default;

  // These throw Error(kValue) if the holder is empty.
  Impl* get() const {
    if (impl_ == nullptr) detail::fail_empty_holder(typeid(Impl));
    if constexpr (std::is_base_of_v<Module, Impl>) impl_->Module::compute_parametrized();
    return impl_.get();
  }
  Impl* operator->() const { return get(); }
  Impl& operator*() const { return *get(); }
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    if constexpr (sizeof...(Args) == 1 || std::is_base_of_v<Callable<Impl>, Impl>) {
      return (*get())(std::forward<Args>(args)...);
    } else {
      return get()->forward(std::forward<Args>(args)...);
    }
  }
  const std::shared_ptr<Impl>& ptr() const { return impl_; }
  bool is_empty() const { return impl_ == nullptr; }
  explicit operator bool() const { return impl_ != nullptr; }

 private:
  std::shared_ptr<Impl> impl_;
};

#define MYTORCH_MODULE_IMPL(Name, Impl)                    \
  class Name : public ::mytorch::nn::ModuleHolder<Impl> {  \
   public:                                                 \
    using ::mytorch::nn::ModuleHolder<Impl>::ModuleHolder; \
  }
#define MYTORCH_MODULE(Name) MYTORCH_MODULE_IMPL(Name, Name##Impl)

}  // namespace mytorch::nn
