// A number together with its category: bool, integer or float.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mytorch/abi.h"
#include "mytorch/dtype.h"

namespace mytorch {

class Scalar {
 public:
  constexpr Scalar() : Scalar(int64_t{0}) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  constexpr Scalar(T value) {  // NOLINT: numbers are Scalars
    if constexpr (std::is_floating_point_v<T>) {
      abi_.v.d = value;
      abi_.kind = MT_SCALAR_FLOAT;
    } else {
      abi_.v.i = static_cast<int64_t>(value);
      abi_.kind = std::is_same_v<T, bool> ? MT_SCALAR_BOOL : MT_SCALAR_INT;
    }
  }
  constexpr explicit Scalar(mt_scalar abi) : abi_(abi) {}

  constexpr bool is_bool() const { return abi_.kind == MT_SCALAR_BOOL; }
  constexpr bool is_int() const { return abi_.kind == MT_SCALAR_INT; }
  constexpr bool is_float() const { return abi_.kind == MT_SCALAR_FLOAT; }
  constexpr double to_double() const {
    return is_float() ? abi_.v.d : static_cast<double>(abi_.v.i);
  }
  // Truncates a float, as a cast does.
  constexpr int64_t to_int() const {
    return is_float() ? static_cast<int64_t>(abi_.v.d) : abi_.v.i;
  }
  constexpr bool to_bool() const { return is_float() ? abi_.v.d != 0 : abi_.v.i != 0; }
  template <class T>
  constexpr T to() const {
    if constexpr (std::is_same_v<T, bool>) {
      return to_bool();
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(to_double());
    } else {
      return static_cast<T>(to_int());
    }
  }
  // The names of libtorch.
  constexpr double toDouble() const { return to_double(); }
  constexpr float toFloat() const { return to<float>(); }
  constexpr int64_t toLong() const { return to_int(); }
  constexpr int toInt() const { return to<int>(); }
  constexpr bool toBool() const { return to_bool(); }
  // Returns the type of this number in promotion: bool, int64 or the default float type (float32).
  constexpr ScalarType type() const { return is_float() ? kFloat32 : is_int() ? kInt64 : kBool; }
  constexpr const mt_scalar& abi() const { return abi_; }
  constexpr bool operator==(const Scalar& other) const {
    return is_float() || other.is_float() ? to_double() == other.to_double()
                                          : to_int() == other.to_int();
  }

 private:
  mt_scalar abi_{};
};

}  // namespace mytorch
