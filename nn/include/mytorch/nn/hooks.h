// Hooks of modules. Part of mytorch/nn/module.h.
#pragma once

#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "mytorch/std_function.h"
#include "mytorch/tensor.h"

namespace mytorch::nn {

class Module;

namespace detail {

struct Hooks;

// Makes a hook of a function that returns a Tensor or nothing.
template <class... Args, class F>
std::function<Tensor(Args...)> as_hook(F function) {
  if constexpr (std::is_void_v<std::invoke_result_t<F&, Args...>>) {
    return [function = std::move(function)](Args... args) mutable {
      function(args...);
      return Tensor();
    };
  } else {
    return function;
  }
}

// Returns the first tensor of a module's result, or null.
template <class Result>
Tensor* first_tensor(Result& result) {
  if constexpr (std::is_same_v<Result, Tensor>) {
    return &result;
  } else if constexpr (requires { std::get<0>(result); }) {
    return first_tensor(std::get<0>(result));
  } else if constexpr (requires { requires std::is_same_v<decltype(result.output), Tensor>; }) {
    return &result.output;
  } else {
    return nullptr;
  }
}

}  // namespace detail

// Removes a hook of a module. Destroying the handle does not.
class HookHandle {
 public:
  HookHandle() = default;
  void remove();  // does nothing if the hook or the module no longer exists

 private:
  friend class Module;
  HookHandle(std::weak_ptr<detail::Hooks> hooks, int64_t id) : hooks_(std::move(hooks)), id_(id) {}
  std::weak_ptr<detail::Hooks> hooks_;
  int64_t id_ = 0;
};

}  // namespace mytorch::nn
