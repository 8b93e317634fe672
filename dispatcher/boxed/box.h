// Arguments of operators as Values, for the wrappers of layers that treat all operators alike.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dispatcher/boxed/boxed.h"
#include "mytorch/call.h"

namespace mytorch::boxing {

inline Value box(const Tensor& x) { return x.defined() ? Value(x) : Value(); }
inline Value box(const Operand& x) {
  return x.is_tensor() ? Value(x.tensor()) : x.is_scalar() ? Value(x.scalar()) : Value();
}
inline Value box(const TensorList& x) { return Value(std::vector<Tensor>(x.begin(), x.end())); }
inline Value box(const IntList& x) { return Value(x.vec()); }
inline Value box(const OptionalIntList& x) { return x.has_value() ? Value(x->vec()) : Value(); }
inline Value box(const FloatList& x) { return Value(std::vector<double>(x.begin(), x.end())); }
inline Value box(const OptionalFloatList& x) { return x.has_value() ? box(*x) : Value(); }
inline Value box(const std::string_view& x) { return Value(std::string(x)); }
inline Value box(const Str& x) { return Value(std::string(x)); }
template <class T>
Value box(const T& x) {
  return Value(x);
}
template <class T>
Value box(const std::optional<T>& x) {
  return x.has_value() ? box(*x) : Value();
}

// Calls a derived gradient, of which only some results are wanted, with Values.
template <class Op, class Signature = typename Op::Signature>
struct Derived;
template <class Op, class R, class... P>
struct Derived<Op, R(const bool*, P...)> {
  static void call(const bool* wanted, const Value* values, std::vector<Value>* results) {
    call(wanted, values, results, std::index_sequence_for<P...>());
  }

 private:
  template <size_t... i>
  static void call(const bool* wanted, const Value* values, std::vector<Value>* results,
                   std::index_sequence<i...>) {
    unbox::append(results, Layered<Op, kFunction>::call(wanted, unbox::As<P>::get(values[i])...));
  }
};

}  // namespace mytorch::boxing
