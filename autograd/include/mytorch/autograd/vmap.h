// Vectorization: a function of one example becomes a function of a batch of examples.
//
//   const auto predict = [&](const Tensor& x) { return tanh(matmul(w, x)); };  // x: (in)
//   const Tensor y = vmap(predict)(xs);                                        // xs: (N, in)
//
// Inside the function each tensor has the shape of one example: sizes(), dim() and size(-1) do not
// show the batch dimension. Operators compute all examples at once. vmap nests, and composes with
// gradients in both orders: gradients flow through a vmapped function, and vjp, jvp, jacobian,
// hessian and grad work for each example inside it.
//
//   // The gradient of the loss of each example: dw has the shape (N, out, in).
//   const auto loss = [](const Tensor& w, const Tensor& x) { return sum(tanh(matmul(w, x))); };
//   const Tensor dw = vmap([&](const Tensor& w, const Tensor& x) {
//     return vjp([&](const Tensor& w) { return loss(w, x); }, w).second;
//   }, {std::nullopt, 0})(w, xs);
//
// docs/autograd.md lists what the function may not do.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/autograd/functional.h"
#include "mytorch/tensor.h"

namespace mytorch::autograd {

// The batch dimension of each input or output: one number for all, or one for each. Negative
// numbers count from the end. std::nullopt marks an input without a batch dimension, which every
// example shares; outputs always have one.
class BatchDims {
 public:
  BatchDims(int64_t all) : dims_{all}, same_(true) {}                              // NOLINT
  BatchDims(std::initializer_list<std::optional<int64_t>> dims) : dims_(dims) {}   // NOLINT
  BatchDims(std::vector<std::optional<int64_t>> dims) : dims_(std::move(dims)) {}  // NOLINT
  // Returns the dimension of tensor `i` of `count`. Throws Error(kValue), beginning with `what`, if
  // another number of dimensions was given.
  std::optional<int64_t> at(size_t i, size_t count, const char* what) const;

 private:
  std::vector<std::optional<int64_t>> dims_;
  bool same_ = false;
};

struct VmapOptions {
  // The number of examples to compute at once, to bound the memory; 0 computes all.
  int64_t chunk_size = 0;
  // What a random operator inside the function does: "error" throws, "different" draws other
  // numbers for each example, "same" the same numbers for all.
  std::string randomness = "error";
};

namespace functional {

std::vector<Tensor> vmap(const TensorFunction& f, const std::vector<Tensor>& inputs,
                         const BatchDims& in_dims, const BatchDims& out_dims,
                         const VmapOptions& options);

}  // namespace functional

// A function that calls another one on each example of a batch. See vmap.
template <class F>
class Vmapped {
 public:
  Vmapped(F f, BatchDims in_dims, BatchDims out_dims, VmapOptions options)
      : f_(std::move(f)),
        in_dims_(std::move(in_dims)),
        out_dims_(std::move(out_dims)),
        options_(std::move(options)) {}

  template <class... T>
  requires(std::is_convertible_v<const T&, Tensor>&&...) auto operator()(const T&... inputs) const {
    if constexpr (sizeof...(T) == 1) {
      return call<Tensor>({Tensor(inputs)...});
    } else {
      return call<std::tuple<std::conditional_t<true, Tensor, T>...>>({Tensor(inputs)...});
    }
  }
  auto operator()(const std::vector<Tensor>& inputs) const {
    return call<std::vector<Tensor>>(inputs);
  }

 private:
  template <class In>
  auto call(const std::vector<Tensor>& inputs) const {
    using Out = functional::Out<const F, In>;
    std::vector<Tensor> outputs =
        functional::vmap(functional::wrap<const F, In>(f_), inputs, in_dims_, out_dims_, options_);
    return Structure<Out>::build([&](size_t i) { return std::move(outputs[i]); }, outputs.size());
  }

  F f_;
  BatchDims in_dims_;
  BatchDims out_dims_;
  VmapOptions options_;
};

// Returns a function of batches that calls `f` on all examples at once and stacks what it returns.
//
// `f` takes one Tensor, several, or a std::vector<Tensor>, and returns a Tensor, a std::tuple of
// Tensors, or a std::vector<Tensor>; it must be callable as const. At least one input has a batch
// dimension, and all batch dimensions have the same size, at least 1. An output that does not
// depend on the batch is repeated.
//
// The call throws Error(kShape) if the batch dimensions differ in size or are out of range, and
// Error(kUnsupported) if `f` reads the value of a batched tensor (item, if, to_vector), writes a
// batched tensor into one that is not, or draws random numbers while randomness is "error". An
// operator without a rule for batches runs once for each example, with a warning that names it.
template <class F>
auto vmap(F&& f, BatchDims in_dims = 0, BatchDims out_dims = 0, VmapOptions options = {}) {
  return Vmapped<std::decay_t<F>>(std::forward<F>(f), std::move(in_dims), std::move(out_dims),
                                  std::move(options));
}

}  // namespace mytorch::autograd

namespace mytorch {
using autograd::vmap;
}
