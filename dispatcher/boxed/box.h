// Arguments of operators as Values, for the wrappers of layers that treat all operators alike.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

}  // namespace mytorch::boxing
