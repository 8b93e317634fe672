// A number together with its category: bool, integer, float or complex.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <type_traits>

#include "mytorch/abi.h"
#include "mytorch/dtype.h"

namespace mytorch {

namespace detail {
// A number that converts to Scalar.
template <class T>
concept AnyNumber = std::is_arithmetic_v<T> || ComplexNumber<T>;
// Throws Error(kType): a number with an imaginary part is no real number.
[[noreturn]] void refuse_imaginary(double real, double imaginary);
}  // namespace detail

class Scalar {
 public:
  constexpr Scalar() : Scalar(int64_t{0}) {}
  template <detail::AnyNumber T>
  constexpr Scalar(T value) {  // NOLINT: numbers are Scalars
    if constexpr (detail::ComplexNumber<T>) {
      number_.d = value.real();
      imag_ = value.imag();
      kind_ = MT_SCALAR_COMPLEX;
    } else if constexpr (std::is_floating_point_v<T>) {
      number_.d = value;
      kind_ = MT_SCALAR_FLOAT;
    } else {
      number_.i = static_cast<int64_t>(value);
      kind_ = std::is_same_v<T, bool> ? MT_SCALAR_BOOL : MT_SCALAR_INT;
    }
  }
  constexpr explicit Scalar(const mt_scalar& abi) : kind_(abi.kind), number_(abi.v) {
    if (is_complex()) [[unlikely]] {
      number_.d = abi.v.z[0];
      imag_ = abi.v.z[1];
    }
  }
  static constexpr Scalar complex(double real, double imaginary) {
    Scalar z(real);
    z.imag_ = imaginary;
    z.kind_ = MT_SCALAR_COMPLEX;
    return z;
  }

  constexpr bool is_bool() const { return kind_ == MT_SCALAR_BOOL; }
  constexpr bool is_int() const { return kind_ == MT_SCALAR_INT; }
  constexpr bool is_float() const { return kind_ == MT_SCALAR_FLOAT; }
  constexpr bool is_complex() const { return kind_ == MT_SCALAR_COMPLEX; }
  // The conversions to real numbers throw Error(kType) for a number with an imaginary part.
  constexpr double to_double() const {
    return has_fraction() ? real_only() : static_cast<double>(number_.i);
  }
  // Truncates a float. NaN and numbers out of range give the smallest int64, as elements do.
  constexpr int64_t to_int() const { return has_fraction() ? truncated(real_only()) : number_.i; }
  constexpr bool to_bool() const {
    return has_fraction() ? number_.d != 0 || (is_complex() && imag_ != 0) : number_.i != 0;
  }
  template <class T>
  constexpr T to() const {
    if constexpr (detail::ComplexNumber<T>) {
      using Part = typename T::value_type;
      return T(static_cast<Part>(real()), static_cast<Part>(imag()));
    } else if constexpr (std::is_same_v<T, bool>) {
      return to_bool();
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(to_double());
    } else {
      return static_cast<T>(to_int());
    }
  }
  // The parts of the number.
  constexpr double real() const {
    return has_fraction() ? number_.d : static_cast<double>(number_.i);
  }
  constexpr double imag() const { return is_complex() ? imag_ : 0; }
  // The names of libtorch.
  constexpr double toDouble() const { return to_double(); }
  constexpr float toFloat() const { return to<float>(); }
  constexpr int64_t toLong() const { return to_int(); }
  constexpr int toInt() const { return to<int>(); }
  constexpr bool toBool() const { return to_bool(); }
  constexpr bool isComplex() const { return is_complex(); }
  constexpr bool isFloatingPoint() const { return is_float(); }
  constexpr bool isBoolean() const { return is_bool(); }
  constexpr bool isIntegral(bool include_bool) const {
    return is_int() || (include_bool && is_bool());
  }
  // Returns the type of this number in promotion: bool, int64, the default float type (float32), or
  // the complex type of that.
  constexpr ScalarType type() const {
    return is_float() ? kFloat32 : is_int() ? kInt64 : is_bool() ? kBool : kComplex64;
  }
  // Returns the number as it crosses the contract. That of a complex number points into this one.
  constexpr mt_scalar abi() const {
    mt_scalar result{number_, kind_, 0};
    if (is_complex()) [[unlikely]]
      result.v.z = &number_.d;
    return result;
  }
  // Writes the number: 3, 0.5, true, (1,-2).
  friend std::ostream& operator<<(std::ostream& out, const Scalar& number);
  constexpr bool equals(double value) const { return real() == value && imag() == 0; }
  constexpr bool equals(int64_t value) const {
    return has_fraction() ? equals(static_cast<double>(value)) : number_.i == value;
  }
  constexpr bool operator==(const Scalar& other) const {
    if (is_complex() || other.is_complex()) return real() == other.real() && imag() == other.imag();
    return is_float() || other.is_float() ? to_double() == other.to_double()
                                          : to_int() == other.to_int();
  }

 private:
  static constexpr int64_t truncated(double x) {
    return x >= -0x1p63 && x < 0x1p63 ? static_cast<int64_t>(x) : INT64_MIN;
  }
  friend class Operand;
  friend class HostScalar;
  struct Absent {};
  constexpr explicit Scalar(Absent) : kind_(MT_SCALAR_NONE) {}

  void* parts() { return &number_; }
  constexpr bool has_fraction() const { return kind_ >= MT_SCALAR_FLOAT; }
  constexpr double real_only() const {
    if (is_complex() && imag_ != 0) [[unlikely]]
      detail::refuse_imaginary(number_.d, imag_);
    return number_.d;
  }

  int32_t kind_;
  // The real part, followed by the imaginary part: abi() points to both.
  decltype(mt_scalar::v) number_{};  // i of BOOL (0 or 1) and INT, d of FLOAT and COMPLEX
  double imag_ = 0;
};
static_assert(sizeof(Scalar) == 24);

}  // namespace mytorch
