// The bases of modules that are layers, have options, or take other arguments than one tensor. Part
// of mytorch/nn/module.h.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

// Gives the class M of a module what libtorch's programs expect of a pointer to it: in
// `fc->forward(x)`, the layer `fc` is a value. All layers of mytorch derive from this class.
template <class M, class Base = Module>
class Layer : public Base {
 public:
  using Base::Base;
  M* operator->() {
    this->Module::compute_parametrized();
    return static_cast<M*>(this);
  }
  const M* operator->() const { return static_cast<const M*>(this); }
  M& operator*() { return static_cast<M&>(*this); }
  const M& operator*() const { return static_cast<const M&>(*this); }
  M* get() { return static_cast<M*>(this); }
  const M* get() const { return static_cast<const M*>(this); }
  // Whether the layer was made otherwise than from nullptr.
  explicit operator bool() const { return !this->Module::is_empty(); }
  // Returns a copy of the layer, which shares its parameters.
  std::shared_ptr<M> ptr() const { return std::make_shared<M>(**this); }
  // Returns a copy with its own parameters, as the function nn::clone does.
  std::shared_ptr<M> clone() const { return std::make_shared<M>(nn::clone(**this)); }
};

// A layer whose constructor takes options.
template <class M, class Args, class Base = Module>
class LayerWith : public Layer<M, Base> {
 public:
  using Layer<M, Base>::Layer;
  explicit LayerWith(Args options = {}) : options(std::move(options)) {}

  BuiltOptions<Args> options;
};

// The base of modules whose forward takes other arguments than one tensor. Derives them from Base,
// and gives them operator():
//
//   struct Attention : nn::Callable<Attention> {
//     Tensor forward(const Tensor& query, const Tensor& key, const Tensor& mask = {});
//   };
//   attention(x, y)
template <class M, class Base>
class Callable : public Layer<M, Base> {
 public:
  using Layer<M, Base>::Layer;
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    try {
      this->check_not_empty();
      this->Module::compute_parametrized();
      if (this->has_hooks()) return call_hooked(std::forward<Args>(args)...);
      return static_cast<M&>(*this).forward(std::forward<Args>(args)...);
    } catch (const Error&) {
      this->rethrow_with_path();
    }
  }

 private:
  template <class... Args>
  decltype(auto) call_hooked(Args&&... args) {
    M& self = static_cast<M&>(*this);
    using Result = decltype(self.forward(std::forward<Args>(args)...));
    if constexpr (std::is_void_v<Result> || std::is_reference_v<Result> || sizeof...(Args) == 0) {
      return self.forward(std::forward<Args>(args)...);
    } else {
      return call_hooked_with<Result>(std::forward<Args>(args)...);
    }
  }
  template <class Result, class First, class... Rest>
  Result call_hooked_with(First&& first, Rest&&... rest) {
    M& self = static_cast<M&>(*this);
    constexpr bool is_tensor = std::is_same_v<std::decay_t<First>, Tensor>;
    Tensor input;
    if constexpr (is_tensor) input = this->before_forward(first);
    std::remove_const_t<Result> result = [&]() -> Result {
      if constexpr (is_tensor) {
        return self.forward(input, std::forward<Rest>(rest)...);
      } else {
        return self.forward(std::forward<First>(first), std::forward<Rest>(rest)...);
      }
    }();
    Tensor* output = detail::first_tensor(result);
    Tensor replaced = this->after_forward(input, output != nullptr ? *output : Tensor());
    if (output != nullptr) *output = std::move(replaced);
    return result;
  }
};

// libtorch's base of modules that can be cloned, which make their parts in `reset`:
//
//   struct NetImpl : nn::Cloneable<NetImpl> {
//     NetImpl() { reset(); }
//     void reset() override { fc = register_module("fc", nn::Linear(4, 2)); }
//     nn::Linear fc{nullptr};
//   };
//
// clone() needs no reset, as it copies the parts.
template <class M>
class Cloneable : public Callable<M> {
 public:
  using Callable<M>::Callable;
  virtual void reset() = 0;
};

}  // namespace mytorch::nn
