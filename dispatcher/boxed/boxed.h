// From boxed values to a C++ function's parameters and back: boxed<&add> has the type of
// OpInfo::boxed. The values were converted to the schema's types before (call.cpp).
#pragma once

#include <string_view>
#include <tuple>
#include <utility>

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

template <auto function, class R, class... A, size_t... i>
void invoke(const Value* args, std::vector<Value>* results, R (*)(A...),
            std::index_sequence<i...>) {
  if constexpr (std::is_void_v<R>) {
    function(As<A>::get(args[i])...);
  } else if constexpr (std::is_reference_v<R>) {
    results->emplace_back(Tensor(function(As<A>::get(args[i])...)));
  } else {
    append(results, function(As<A>::get(args[i])...));
  }
}

template <class R, class... A>
constexpr size_t arity(R (*)(A...)) {
  return sizeof...(A);
}

}  // namespace unbox

template <auto function>
void boxed(const Value* args, std::vector<Value>* results) {
  unbox::invoke<function>(args, results, function,
                          std::make_index_sequence<unbox::arity(function)>());
}

// The out= form, called with its `outs` outputs before the arguments.
template <int outs, auto function>
void boxed_out(const Value* args, std::vector<Value>* results) {
  boxed<function>(args, results);
  for (int i = 0; i < outs; ++i) results->push_back(args[i]);
}

// An op that writes lists of tensors: its results are the arguments of these numbers.
template <auto function, int... lists>
void boxed_lists(const Value* args, std::vector<Value>* results) {
  boxed<function>(args, results);
  (results->push_back(args[lists]), ...);
}

}  // namespace mytorch
