// What a call holds while it runs: its arguments, as fields of the argument struct of a kernel, and
// its results. For the forms of operators (forms.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "dispatcher/frame/kernel_call.h"
#include "dispatcher/frame/outputs.h"
#include "dispatcher/frame/pointwise.h"
#include "dispatcher/table/layers.h"

namespace mytorch {

template <class Op>
struct Traits;

template <auto... member>
struct Members {
  static constexpr int size = sizeof...(member);
};

// ---- arguments ----

// An argument during a call, and the storage that its field of the argument struct points to.
template <class T>
struct Held {
  const T& value;
  auto abi() const { return abi_value(value); }
};
template <>
struct Held<Tensor> {
  const Tensor& value;
  const mt_tensor* abi() const { return optional_abi(value); }
};
template <class T, class Holder>
struct HeldBy {
  explicit HeldBy(const T& argument) : value(argument), holder(argument) {}
  auto abi() const { return holder.abi(); }
  const T& value;
  Holder holder;
};
template <>
struct Held<Operand> : HeldBy<Operand, OperandArg> {
  using HeldBy::HeldBy;
};
template <>
struct Held<TensorList> : HeldBy<TensorList, TensorListArg> {
  using HeldBy::HeldBy;
};
template <>
struct Held<Str> : HeldBy<Str, StrArg> {
  using HeldBy::HeldBy;
};
template <>
struct Held<std::optional<std::string_view>> : HeldBy<std::optional<std::string_view>, StrArg> {
  using HeldBy::HeldBy;
};
template <>
struct Held<std::optional<Generator>> {
  const std::optional<Generator>& value;
};

template <class H>
inline constexpr bool is_operand =
    std::is_same_v<H, Held<Tensor>> || std::is_same_v<H, Held<Operand>>;
template <class H>
inline constexpr bool is_generator = std::is_same_v<H, Held<std::optional<Generator>>>;

template <class Op, class H>
[[gnu::always_inline]] inline void check_one_given(int arg, const H& held) {
  if constexpr (is_operand<H>) {
    if ((Traits<Op>::optional >> arg & 1) == 0 && held.abi() == nullptr) [[unlikely]] {
      required_slow(Op::info, Op::info.args[arg].name);
    }
  }
}
// Throws Error(kValue) for an undefined tensor that is not optional.
template <class Op, class... H>
[[gnu::always_inline]] inline void check_given(const H&... held) {
  int arg = 0;
  (check_one_given<Op>(arg++, held), ...);
}

inline const Tensor& first_tensor(const Held<Tensor>& first, const auto&...) { return first.value; }
inline const Tensor& first_tensor(const auto&, const auto&... rest) {
  return first_tensor(rest...);
}

template <class F, class H, class... All>
[[gnu::always_inline]] inline void set_field(F& field, const H& held, const All&... all) {
  if constexpr (is_generator<H>) {
    field = random_call(held.value, first_tensor(all...));
  } else {
    field = held.abi();
  }
}
template <class Args, auto... member, class... H>
[[gnu::always_inline]] inline void set_fields(Args& args, Members<member...>, const H&... held) {
  (set_field(args.*member, held, held...), ...);
}

template <class Args, auto... member>
[[gnu::always_inline]] inline void set_outputs(Args& args, Members<member...>,
                                               TensorImpl* const* outputs) {
  ((args.*member = &(*outputs++)->abi), ...);
}
template <class Args, auto... member>
[[gnu::always_inline]] inline void set_wanted_outputs(Args& args, Members<member...>,
                                                      TensorImpl* const* outputs) {
  const auto abi = [](TensorImpl* output) { return output != nullptr ? &output->abi : nullptr; };
  ((args.*member = abi(*outputs++)), ...);
}

// ---- results: a Tensor, or a tuple ----

template <size_t n, size_t... i>
[[gnu::always_inline]] inline auto adopt_each(TensorImpl* const (&outputs)[n],
                                              std::index_sequence<i...>) {
  return std::tuple{Tensor::adopt(outputs[i])...};
}
template <size_t n>
[[gnu::always_inline]] inline auto adopt(TensorImpl* const (&outputs)[n]) {
  if constexpr (n == 1) {
    return Tensor::adopt(outputs[0]);
  } else {
    return adopt_each(outputs, std::make_index_sequence<n>());
  }
}

inline const TensorSpec& nth(std::index_sequence<0>, const TensorSpec& spec) { return spec; }
template <size_t i, class... T>
const auto& nth(std::index_sequence<i>, const std::tuple<T...>& all) {
  return std::get<i>(all);
}
inline const Tensor& nth(std::index_sequence<0>, const Tensor& result) { return result; }

// The outputs of an out= form, in the order of the results.
template <size_t n>
using Outs = const Tensor* const (&)[n];

template <class Op, class Result, size_t n, size_t... i>
void assign_all(Outs<n> outs, const Result& results, std::index_sequence<i...>) {
  if constexpr (n == 1) {
    assign_out(Op::info, *outs[0], results);
  } else {
    assign_outs(Op::info, outs, {&std::get<i>(results)...});
  }
}

}  // namespace mytorch
