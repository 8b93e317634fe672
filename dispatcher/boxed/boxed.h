// The boxed forms of operators (OpInfo::boxed, boxed_inplace, boxed_out): converts Values to
// parameters, and results back. The Values already have the types of the schema (call.cpp).
#pragma once

#include <string_view>
#include <tuple>
#include <utility>

#include "dispatcher/table/layers.h"
#include "mytorch/call.h"

namespace mytorch {
namespace unbox {

template <class T>
struct As;

template <>
struct As<const Tensor&> {
  static Tensor get(const Value& v) { return v.is_none() ? Tensor() : v.tensor(); }
};
template <>
struct As<const Operand&> {
  static Operand get(const Value& v) {
    if (v.is_none()) return {};
    if (std::holds_alternative<Tensor>(v.variant())) return Operand(v.tensor());
    return Operand(v.scalar());
  }
};
template <>
struct As<const Scalar&> {
  static Scalar get(const Value& v) { return v.scalar(); }
};
template <>
struct As<int64_t> {
  static int64_t get(const Value& v) { return v.scalar().to_int(); }
};
template <>
struct As<double> {
  static double get(const Value& v) { return v.scalar().to_double(); }
};
template <>
struct As<bool> {
  static bool get(const Value& v) { return v.scalar().to_bool(); }
};
template <>
struct As<IntList> {
  static IntList get(const Value& v) { return std::get<std::vector<int64_t>>(v.variant()); }
};
template <>
struct As<OptionalIntList> {
  static OptionalIntList get(const Value& v) {
    if (v.is_none()) return {};
    return OptionalIntList(As<IntList>::get(v));
  }
};
template <>
struct As<FloatList> {
  static FloatList get(const Value& v) { return std::get<std::vector<double>>(v.variant()); }
};
template <>
struct As<OptionalFloatList> {
  static OptionalFloatList get(const Value& v) {
    if (v.is_none()) return {};
    return OptionalFloatList(As<FloatList>::get(v));
  }
};
template <>
struct As<TensorList> {
  static TensorList get(const Value& v) { return v.tensors(); }
};
template <>
struct As<std::string_view> {
  static std::string_view get(const Value& v) { return std::get<std::string>(v.variant()); }
};
template <>
struct As<Str> {
  static Str get(const Value& v) { return As<std::string_view>::get(v); }
};
template <>
struct As<ScalarType> {
  static ScalarType get(const Value& v) { return std::get<ScalarType>(v.variant()); }
};
template <>
struct As<Device> {
  static Device get(const Value& v) { return std::get<Device>(v.variant()); }
};
template <>
struct As<Generator> {
  static Generator get(const Value& v) { return std::get<Generator>(v.variant()); }
};
template <>
struct As<const Handle&> {
  static Handle get(const Value& v) {
    return v.is_none() ? Handle() : std::get<Handle>(v.variant());
  }
};
template <>
struct As<Scalar> : As<const Scalar&> {};
template <class T>
struct As<std::optional<T>> {
  static std::optional<T> get(const Value& v) {
    if (v.is_none()) return std::nullopt;
    return As<T>::get(v);
  }
};

template <class T>
void append(std::vector<Value>* results, T&& result) {
  results->emplace_back(std::forward<T>(result));
}
template <class... T>
void append(std::vector<Value>* results, std::tuple<T...>&& result) {
  std::apply([&](auto&&... each) { (append(results, std::move(each)), ...); }, std::move(result));
}

template <class Op, Form form, class Type = decltype(Layered<Op, form>::call)>
struct Invoke;
template <class Op, Form form, class R, class... P>
struct Invoke<Op, form, R(P...)> {
  static constexpr size_t size = sizeof...(P);
  // By value: an in-place form returns a reference to its argument, which is a temporary here.
  template <size_t... i>
  static std::remove_cvref_t<R> call(const Value* args, std::index_sequence<i...>) {
    return Layered<Op, form>::call(As<P>::get(args[i])...);
  }
};
// A derived gradient; computes all of its outputs.
template <class Op, class R, class... P>
struct Invoke<Op, kFunction, R(const bool*, P...)> {
  static constexpr size_t size = sizeof...(P);
  template <size_t... i>
  static R call(const Value* args, std::index_sequence<i...>) {
    return Layered<Op, kFunction>::call(kAllWanted, As<P>::get(args[i])...);
  }
};

}  // namespace unbox

// Calls one form of an operator with a boxed value per parameter; the outputs of the out= form come
// first. Returns the outputs of that form, the lists that the operator writes, or its results.
template <class Op, Form form>
void boxed(const Value* args, std::vector<Value>* results) {
  using Invoke = unbox::Invoke<Op, form>;
  constexpr auto indices = std::make_index_sequence<Invoke::size>();
  using R = decltype(Invoke::call(args, indices));
  if constexpr (std::is_void_v<R>) {
    Invoke::call(args, indices);
    for (int i = 0; form == kOut && i < Op::outs; ++i) results->push_back(args[i]);
    for (int i = 0; i < 32; ++i) {
      if ((Op::written_lists >> i & 1) != 0) results->push_back(args[i]);
    }
  } else {
    unbox::append(results, Invoke::call(args, indices));
  }
}

}  // namespace mytorch
