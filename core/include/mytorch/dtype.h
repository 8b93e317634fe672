// Element types.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <type_traits>

#include "mytorch/abi.h"

namespace mytorch {

enum class ScalarType : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,   // of two float32
  kComplex128,  // of two float64
};
inline constexpr int kNumScalarTypes = 12;

inline constexpr ScalarType kBool = ScalarType::kBool;
inline constexpr ScalarType kUInt8 = ScalarType::kUInt8;
inline constexpr ScalarType kInt8 = ScalarType::kInt8;
inline constexpr ScalarType kInt16 = ScalarType::kInt16;
inline constexpr ScalarType kInt32 = ScalarType::kInt32;
inline constexpr ScalarType kInt64 = ScalarType::kInt64;
inline constexpr ScalarType kFloat16 = ScalarType::kFloat16;
inline constexpr ScalarType kBFloat16 = ScalarType::kBFloat16;
inline constexpr ScalarType kFloat32 = ScalarType::kFloat32;
inline constexpr ScalarType kFloat64 = ScalarType::kFloat64;
inline constexpr ScalarType kComplex64 = ScalarType::kComplex64;
inline constexpr ScalarType kComplex128 = ScalarType::kComplex128;

// The names of libtorch.
using Dtype = ScalarType;
inline constexpr ScalarType kByte = kUInt8;
inline constexpr ScalarType kChar = kInt8;
inline constexpr ScalarType kShort = kInt16;
inline constexpr ScalarType kInt = kInt32;
inline constexpr ScalarType kLong = kInt64;
inline constexpr ScalarType kHalf = kFloat16;
inline constexpr ScalarType kFloat = kFloat32;
inline constexpr ScalarType kDouble = kFloat64;
inline constexpr ScalarType kComplexFloat = kComplex64;
inline constexpr ScalarType kComplexDouble = kComplex128;
inline constexpr ScalarType kU8 = kUInt8;
inline constexpr ScalarType kI8 = kInt8;
inline constexpr ScalarType kI16 = kInt16;
inline constexpr ScalarType kI32 = kInt32;
inline constexpr ScalarType kI64 = kInt64;
inline constexpr ScalarType kF16 = kFloat16;
inline constexpr ScalarType kBF16 = kBFloat16;
inline constexpr ScalarType kF32 = kFloat32;
inline constexpr ScalarType kF64 = kFloat64;

// Storage types of the two 16-bit floats. They hold bits only; convert to float for arithmetic.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value);
  explicit operator float() const;
};
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  explicit operator float() const;
};

namespace detail {
// std::complex<T> of an element type T, or a type like it. Recognized by its members, because
// <complex> would double the cost of including this header.
template <class T>
concept ComplexNumber = std::is_class_v<T> && requires(const T& z) {
  typename T::value_type;
  requires std::is_same_v<typename T::value_type, float> ||
      std::is_same_v<typename T::value_type, double>;
  requires sizeof(T) == 2 * sizeof(typename T::value_type);
  requires std::is_same_v<decltype(z.real()), typename T::value_type>;
  requires std::is_same_v<decltype(z.imag()), typename T::value_type>;
};

// The rows of the table below, in the order of ScalarType.
struct DtypeRow {
  mt_dtype abi;
  const char* name;
};
inline constexpr DtypeRow kDtypes[kNumScalarTypes] = {
    {{MT_BOOL, 8, 1}, "bool"},          {{MT_UINT, 8, 1}, "uint8"},
    {{MT_INT, 8, 1}, "int8"},           {{MT_INT, 16, 1}, "int16"},
    {{MT_INT, 32, 1}, "int32"},         {{MT_INT, 64, 1}, "int64"},
    {{MT_FLOAT, 16, 1}, "float16"},     {{MT_BFLOAT, 16, 1}, "bfloat16"},
    {{MT_FLOAT, 32, 1}, "float32"},     {{MT_FLOAT, 64, 1}, "float64"},
    {{MT_COMPLEX, 64, 1}, "complex64"}, {{MT_COMPLEX, 128, 1}, "complex128"},
};
}  // namespace detail

// Returns false for a number that was cast to ScalarType and is none of the types.
constexpr bool is_known(ScalarType type) { return static_cast<int>(type) < kNumScalarTypes; }

constexpr mt_dtype to_abi(ScalarType type) { return detail::kDtypes[static_cast<int>(type)].abi; }
constexpr const char* dtype_name(ScalarType type) {
  return detail::kDtypes[static_cast<int>(type)].name;
}
// Returns the size of one element in bytes.
constexpr int64_t element_size(ScalarType type) { return to_abi(type).bits / 8; }
constexpr bool is_floating_point(ScalarType type) {
  return type >= ScalarType::kFloat16 && type <= ScalarType::kFloat64;
}
constexpr bool is_complex(ScalarType type) { return type >= ScalarType::kComplex64; }
// Returns whether tensors of the type may require gradients.
constexpr bool is_differentiable(ScalarType type) { return type >= ScalarType::kFloat16; }
// Returns the type of the parts of a complex type; another type unchanged.
constexpr ScalarType to_real(ScalarType type) {
  return type == ScalarType::kComplex64    ? ScalarType::kFloat32
         : type == ScalarType::kComplex128 ? ScalarType::kFloat64
                                           : type;
}
// Returns the complex type whose parts hold the numbers of a type: complex128 for float64.
constexpr ScalarType to_complex(ScalarType type) {
  return type == ScalarType::kFloat64 || type == ScalarType::kComplex128 ? ScalarType::kComplex128
                                                                         : ScalarType::kComplex64;
}
constexpr bool is_signed(ScalarType type) {
  return type != ScalarType::kBool && type != ScalarType::kUInt8;
}
constexpr bool is_integral(ScalarType type, bool include_bool = false) {
  return type < ScalarType::kFloat16 && (include_bool || type != ScalarType::kBool);
}

// libtorch's names.
constexpr bool isFloatingType(ScalarType type) { return is_floating_point(type); }
constexpr bool isComplexType(ScalarType type) { return is_complex(type); }
constexpr bool isIntegralType(ScalarType type, bool include_bool) {
  return is_integral(type, include_bool);
}
constexpr const char* toString(ScalarType type) { return dtype_name(type); }

constexpr bool same_dtype(mt_dtype a, mt_dtype b) { return a.code == b.code && a.bits == b.bits; }
// Converts a dtype of the C contract. Throws Error(kType) for an unknown one.
ScalarType from_abi(mt_dtype dtype);
// Parses a name such as "float32". Throws Error(kType) for an unknown one.
ScalarType dtype_from_name(const char* name);

std::ostream& operator<<(std::ostream& out, ScalarType type);  // the name

// Returns the result type of `a op b` for two tensors of at least one dimension, by ATen's
// promotion table.
ScalarType promote_types(ScalarType a, ScalarType b);

// Returns whether out= and in-place forms may store a value of type `from` in a tensor of type
// `to`. A complex number is never stored as a real one, nor a float as an integer, nor a number as
// a bool.
constexpr bool can_cast(ScalarType from, ScalarType to) {
  if (is_complex(from) && !is_complex(to)) return false;
  if (is_floating_point(from) && is_integral(to, true)) return false;
  return !(from != ScalarType::kBool && to == ScalarType::kBool);
}

// Returns the ScalarType of a C++ type.
template <class T>
constexpr ScalarType scalar_type_of() {
  if constexpr (std::is_same_v<T, bool>)
    return kBool;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return kUInt8;
  else if constexpr (std::is_same_v<T, int8_t>)
    return kInt8;
  else if constexpr (std::is_same_v<T, int16_t>)
    return kInt16;
  else if constexpr (std::is_same_v<T, int32_t>)
    return kInt32;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
    return kInt64;
  else if constexpr (std::is_same_v<T, Half>)
    return kFloat16;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return kBFloat16;
  else if constexpr (std::is_same_v<T, float>)
    return kFloat32;
  else if constexpr (detail::ComplexNumber<T>)
    return sizeof(typename T::value_type) == 4 ? kComplex64 : kComplex128;
  else {
    static_assert(std::is_same_v<T, double>, "not an element type of mytorch");
    return kFloat64;
  }
}

}  // namespace mytorch
