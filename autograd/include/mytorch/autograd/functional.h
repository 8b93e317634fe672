// Derivatives of functions: products with the Jacobian and the Hessian, and these matrices
// themselves.
//
//   const auto f = [](const Tensor& x, const Tensor& w) { return tanh(x * w); };
//   const auto [value, product] = jvp(f, std::tuple(x, w), std::tuple(dx, dw));
//   const auto [jx, jw] = jacobian(f, std::tuple(x, w));
//   const Tensor h = hessian([](const Tensor& x) { return sum(x * x * x); }, x);
//
// A function takes one Tensor, several, or a std::vector<Tensor>; its inputs are given as a Tensor,
// a std::tuple of Tensors, or a std::vector<Tensor> (also as {x, y}). It returns a Tensor, a
// std::tuple of Tensors, or a std::vector<Tensor>. Gradients with respect to inputs have the
// structure of the inputs, and tangents of outputs that of the outputs.
//
// The function receives new tensors with the values of the inputs, and runs with gradients enabled.
// No tensor's grad changes.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/std_function.h"
#include "mytorch/tensor.h"

namespace mytorch::autograd {

using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

struct FunctionalOptions {
  // Records the computation, so that the results can be differentiated with respect to the inputs
  // that require grad. Otherwise the results, outputs included, are detached.
  bool create_graph = false;
  // An output that does not depend on an input is an error if true, and has zeros as its derivative
  // if false.
  bool strict = false;
  // Of jacobian and hessian: runs backward once for all elements, with vmap, instead of once for
  // each. Faster, and takes the memory of all of them at once.
  bool vectorize = false;
};

// Tensors, std::tuples of them and std::vector<Tensor>: the structures of inputs and outputs.
template <class S>
struct Structure {
  static_assert(
      sizeof(S) == 0,
      "inputs and outputs are a Tensor, a std::tuple of Tensors or a std::vector<Tensor>");
};
template <>
struct Structure<Tensor>;
template <>
struct Structure<std::vector<Tensor>>;
template <class... T>
struct Structure<std::tuple<T...>>;

namespace functional {

struct Products {
  std::vector<Tensor> outputs;
  std::vector<Tensor> products;
};
// [row][column]; a row per output (Jacobian) or input (Hessian), a column per input.
using Blocks = std::vector<std::vector<Tensor>>;

Products vjp(const TensorFunction& f, std::vector<Tensor> inputs, const std::vector<Tensor>& v,
             const FunctionalOptions& options);
Products jvp(const TensorFunction& f, std::vector<Tensor> inputs, const std::vector<Tensor>& v,
             const FunctionalOptions& options);
Products vhp(const TensorFunction& f, std::vector<Tensor> inputs, const std::vector<Tensor>& v,
             const FunctionalOptions& options);
Products hvp(const TensorFunction& f, std::vector<Tensor> inputs, const std::vector<Tensor>& v,
             const FunctionalOptions& options);
Blocks jacobian(const TensorFunction& f, std::vector<Tensor> inputs,
                const FunctionalOptions& options);
Blocks hessian(const TensorFunction& f, std::vector<Tensor> inputs,
               const FunctionalOptions& options);
[[noreturn]] void fail_inputs(size_t given, size_t taken);

template <class F, class In>
decltype(auto) call(F& f, const std::vector<Tensor>& inputs);
template <class F, class In>
using Result = decltype(call<F, In>(std::declval<F&>(), std::declval<std::vector<Tensor>>()));
// The structure of the outputs. Anything that converts to a Tensor is one.
template <class F, class In>
using Out = std::conditional_t<std::is_convertible_v<Result<F, In>, Tensor>, Tensor,
                               std::remove_cvref_t<Result<F, In>>>;

template <class F, class In>
TensorFunction wrap(F& f) {
  return [&f](const std::vector<Tensor>& inputs) {
    return Structure<Out<F, In>>::flatten(call<F, In>(f, inputs));
  };
}

template <class Output, class Input>
std::pair<Output, Input> pair_of(Products found) {
  return {Structure<Output>::build([&](size_t i) { return std::move(found.outputs[i]); },
                                   found.outputs.size()),
          Structure<Input>::build([&](size_t i) { return std::move(found.products[i]); },
                                  found.products.size())};
}

template <class Row, class Column>
auto blocks_of(Blocks found) {
  return Structure<Row>::build(
      [&](size_t i) {
        return Structure<Column>::build([&](size_t j) { return std::move(found[i][j]); },
                                        found[i].size());
      },
      found.size());
}

}  // namespace functional

// Returns f's outputs and v^T J, the vector-Jacobian product: the gradients of the inputs if v are
// the gradients of the outputs. v may be omitted if the output is a single element. Each tensor of
// v has the shape and type of its output.
//
// All functions of this header throw Error(kValue) for undefined inputs or outputs, Error(kType)
// for inputs that are not of a floating type, and Error(kShape or kType) for a v that does not fit.
template <class F, class In = std::vector<Tensor>>
auto vjp(F&& f, const In& inputs, const functional::Out<std::remove_reference_t<F>, In>& v = {},
         const FunctionalOptions& options = {}) {
  using Fn = std::remove_reference_t<F>;
  using Out = functional::Out<Fn, In>;
  return functional::pair_of<Out, In>(functional::vjp(functional::wrap<Fn, In>(f),
                                                      Structure<In>::flatten(inputs),
                                                      Structure<Out>::flatten(v), options));
}

// Returns f's outputs and J v, the Jacobian-vector product: the derivatives of the outputs along v,
// which has the structure, shapes and types of the inputs. Runs backward twice, so every operator
// of f must be twice differentiable.
template <class F, class In = std::vector<Tensor>>
auto jvp(F&& f, const In& inputs, const std::type_identity_t<In>& v = {},
         const FunctionalOptions& options = {}) {
  using Fn = std::remove_reference_t<F>;
  using Out = functional::Out<Fn, In>;
  return functional::pair_of<Out, Out>(functional::jvp(functional::wrap<Fn, In>(f),
                                                       Structure<In>::flatten(inputs),
                                                       Structure<In>::flatten(v), options));
}

// Returns the Jacobian. The block of an output and an input has the output's sizes followed by the
// input's. For a Tensor in and a Tensor out the result is that block; otherwise it is indexed by
// the output (unless it is a Tensor), then by the input (unless it is a Tensor). Runs backward once
// for each element of the outputs, or once for each output with `vectorize`.
template <class F, class In = std::vector<Tensor>>
auto jacobian(F&& f, const In& inputs, const FunctionalOptions& options = {}) {
  using Fn = std::remove_reference_t<F>;
  return functional::blocks_of<functional::Out<Fn, In>, In>(
      functional::jacobian(functional::wrap<Fn, In>(f), Structure<In>::flatten(inputs), options));
}

// Returns the Hessian of f, whose result has a single element. The block of inputs i and j has the
// sizes of input i followed by those of input j. For a Tensor in, the result is that block;
// otherwise it is indexed by i, then by j. Runs backward once, and once more for each element of
// the inputs.
template <class F, class In = std::vector<Tensor>>
auto hessian(F&& f, const In& inputs, const FunctionalOptions& options = {}) {
  using Fn = std::remove_reference_t<F>;
  return functional::blocks_of<In, In>(
      functional::hessian(functional::wrap<Fn, In>(f), Structure<In>::flatten(inputs), options));
}

// Returns f's output, a single element, and v^T H, the product with its Hessian. v has the
// structure, shapes and types of the inputs.
template <class F, class In = std::vector<Tensor>>
auto vhp(F&& f, const In& inputs, const std::type_identity_t<In>& v = {},
         const FunctionalOptions& options = {}) {
  using Fn = std::remove_reference_t<F>;
  return functional::pair_of<functional::Out<Fn, In>, In>(
      functional::vhp(functional::wrap<Fn, In>(f), Structure<In>::flatten(inputs),
                      Structure<In>::flatten(v), options));
}

// Returns f's output and H v. Equal to vhp for functions with continuous second derivatives, for
// which vhp is faster: it runs backward twice, hvp three times.
template <class F, class In = std::vector<Tensor>>
auto hvp(F&& f, const In& inputs, const std::type_identity_t<In>& v = {},
         const FunctionalOptions& options = {}) {
  using Fn = std::remove_reference_t<F>;
  return functional::pair_of<functional::Out<Fn, In>, In>(
      functional::hvp(functional::wrap<Fn, In>(f), Structure<In>::flatten(inputs),
                      Structure<In>::flatten(v), options));
}

// ---- structures ----

// flatten lists the tensors. build(make, n) makes the structure of the n results of make(i).
template <>
struct Structure<Tensor> {
  static std::vector<Tensor> flatten(const Tensor& tensor) { return {tensor}; }
  template <class Make>
  static auto build(Make&& make, size_t) {
    return make(0);
  }
};
template <>
struct Structure<std::vector<Tensor>> {
  static std::vector<Tensor> flatten(const std::vector<Tensor>& tensors) { return tensors; }
  template <class Make>
  static auto build(Make&& make, size_t n) {
    std::vector<decltype(make(0))> all;
    for (size_t i = 0; i < n; ++i) all.push_back(make(i));
    return all;
  }
};
template <class... T>
struct Structure<std::tuple<T...>> {
  static_assert((std::is_convertible_v<T, Tensor> && ...), "the elements of the tuple are Tensors");
  static std::vector<Tensor> flatten(const std::tuple<T...>& tensors) {
    return std::apply([](const auto&... each) { return std::vector<Tensor>{each...}; }, tensors);
  }
  template <class Make>
  static auto build(Make&& make, size_t) {
    return build_each(make, std::index_sequence_for<T...>());
  }

 private:
  template <class Make, size_t... i>
  static auto build_each(Make& make, std::index_sequence<i...>) {
    return std::make_tuple(make(i)...);
  }
};

namespace functional {

template <size_t>
using TensorAt = const Tensor&;
template <class F, size_t... i>
decltype(auto) spread(F& f, const std::vector<Tensor>& inputs, std::index_sequence<i...>) {
  if (inputs.size() != sizeof...(i)) fail_inputs(inputs.size(), sizeof...(i));
  return f(inputs[i]...);
}
template <class F, class Indices>
inline constexpr bool kTakes = false;
template <class F, size_t... i>
inline constexpr bool kTakes<F, std::index_sequence<i...>> =
    std::is_invocable_v<F&, TensorAt<i>...>;

// The number of Tensors that f takes, from 1 to 8; 0 if it takes none of these numbers.
template <class F, size_t n = 1>
constexpr size_t arity() {
  if constexpr (n > 8 || kTakes<F, std::make_index_sequence<n>>) {
    return n > 8 ? 0 : n;
  } else {
    return arity<F, n + 1>();
  }
}

// Calls f with inputs that were given as an In.
template <class F, class In>
decltype(auto) call(F& f, const std::vector<Tensor>& inputs) {
  if constexpr (std::is_same_v<In, Tensor>) {
    return f(inputs[0]);
  } else if constexpr (std::is_same_v<In, std::vector<Tensor>>) {
    if constexpr (std::is_invocable_v<F&, const std::vector<Tensor>&>) {
      return f(inputs);
    } else {
      static_assert(arity<F>() > 0, "the function takes Tensors or a const std::vector<Tensor>&");
      return spread(f, inputs, std::make_index_sequence<arity<F>()>());
    }
  } else {
    return spread(f, inputs, std::make_index_sequence<std::tuple_size_v<In>>());
  }
}

}  // namespace functional

}  // namespace mytorch::autograd
