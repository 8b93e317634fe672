// Element types: the ten dtypes of mytorch as C++ types, dispatch over them, and conversions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "mytorch/abi.h"
#include "mytorch/backend/error.h"

namespace mytorch::sdk {
inline namespace v1 {

// ---- storage types ----

// An IEEE 754 binary16 number in memory. Arithmetic uses float.
struct Half {
  uint16_t bits = 0;

  Half() = default;
  explicit Half(float value) : bits(round(value)) {}
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FFFu) << 13;
    if (magnitude >= 0x7C00u << 13) {  // infinity or NaN
      return std::bit_cast<float>(sign | magnitude | 0x7F800000u);
    }
    // Multiplying by 2^112 moves the exponent to float's bias, and normalizes subnormals exactly.
    const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  static Half from_bits(uint16_t bits) {
    Half half;
    half.bits = bits;
    return half;
  }

 private:
  static uint16_t round(float value) {
    const uint32_t all = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (all >> 16) & 0x8000u;
    const uint32_t magnitude = all & 0x7FFFFFFFu;
    uint32_t result;
    if (magnitude >
        0x7F800000u) {  // NaN: quiet, with the upper bits of the payload, as in hardware
      result = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
    } else if (magnitude >= 0x47800000u) {  // 2^16 and more; below, a carry takes [65520, 2^16) up
      result = 0x7C00u;
    } else if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal
      // Adding 0.5, whose last bit is worth 2^-24, rounds.
      result = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
    } else {
      result = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
    }
    return static_cast<uint16_t>(sign | result);
  }
};

// A bfloat16 number: the upper half of a float.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) : bits(round(value)) {}
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  static BFloat16 from_bits(uint16_t bits) {
    BFloat16 value;
    value.bits = bits;
    return value;
  }

 private:
  static uint16_t round(float value) {
    const uint32_t all = std::bit_cast<uint32_t>(value);
    // Keeps NaNs, which rounding could carry into infinity.
    if (value != value) return static_cast<uint16_t>((all >> 16) | 0x40u);
    return static_cast<uint16_t>((all + 0x7FFFu + ((all >> 16) & 1u)) >> 16);
  }
};

static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2 && sizeof(bool) == 1);

// ---- dtypes ----

template <class T>
inline constexpr bool is_reduced_float = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class T>
inline constexpr bool is_float_type = std::is_floating_point_v<T> || is_reduced_float<T>;

template <class T>
struct DtypeOf;
#define MYTORCH_SDK_DTYPE(type, code, bits)            \
  template <>                                          \
  struct DtypeOf<type> {                               \
    static constexpr mt_dtype value = {code, bits, 1}; \
  }
MYTORCH_SDK_DTYPE(bool, MT_BOOL, 8);
MYTORCH_SDK_DTYPE(uint8_t, MT_UINT, 8);
MYTORCH_SDK_DTYPE(int8_t, MT_INT, 8);
MYTORCH_SDK_DTYPE(int16_t, MT_INT, 16);
MYTORCH_SDK_DTYPE(int32_t, MT_INT, 32);
MYTORCH_SDK_DTYPE(int64_t, MT_INT, 64);
MYTORCH_SDK_DTYPE(Half, MT_FLOAT, 16);
MYTORCH_SDK_DTYPE(BFloat16, MT_BFLOAT, 16);
MYTORCH_SDK_DTYPE(float, MT_FLOAT, 32);
MYTORCH_SDK_DTYPE(double, MT_FLOAT, 64);
#undef MYTORCH_SDK_DTYPE

template <class T>
inline constexpr mt_dtype dtype_of = DtypeOf<std::remove_cv_t<T>>::value;

// Returns a number that identifies the dtype, for comparisons and switches.
constexpr uint32_t dtype_key(mt_dtype dtype) {
  return static_cast<uint32_t>(dtype.code) << 8 | dtype.bits;
}
constexpr bool same_dtype(mt_dtype a, mt_dtype b) { return dtype_key(a) == dtype_key(b); }
template <class T>
constexpr bool is_dtype(mt_dtype dtype) {
  return same_dtype(dtype, dtype_of<T>);
}
constexpr bool is_floating(mt_dtype dtype) {
  return dtype.code == MT_FLOAT || dtype.code == MT_BFLOAT;
}
constexpr bool is_integral(mt_dtype dtype) {  // not bool
  return dtype.code == MT_INT || dtype.code == MT_UINT;
}
// Only kernels with MT_TAKES_COMPLEX see complex operands, whose elements are two floats.
constexpr bool is_complex(mt_dtype dtype) { return dtype.code == MT_COMPLEX; }
constexpr bool is_bool(mt_dtype dtype) { return dtype.code == MT_BOOL; }
constexpr int64_t itemsize(mt_dtype dtype) { return dtype.bits / 8; }

constexpr const char* dtype_name(mt_dtype dtype) {
  switch (dtype_key(dtype)) {
    case dtype_key(dtype_of<bool>):
      return "bool";
    case dtype_key(dtype_of<uint8_t>):
      return "uint8";
    case dtype_key(dtype_of<int8_t>):
      return "int8";
    case dtype_key(dtype_of<int16_t>):
      return "int16";
    case dtype_key(dtype_of<int32_t>):
      return "int32";
    case dtype_key(dtype_of<int64_t>):
      return "int64";
    case dtype_key(dtype_of<Half>):
      return "float16";
    case dtype_key(dtype_of<BFloat16>):
      return "bfloat16";
    case dtype_key(dtype_of<float>):
      return "float32";
    case dtype_key(dtype_of<double>):
      return "float64";
    case dtype_key({MT_COMPLEX, 64, 1}):
      return "complex64";
    case dtype_key({MT_COMPLEX, 128, 1}):
      return "complex128";
    default:
      return "unknown";
  }
}

// ---- dispatch ----

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>{}) with the type of a dtype and returns its result. Throws
// Error(MT_ERROR_TYPE) for an unknown dtype.
//   visit_dtype(x.dtype(), [&](auto tag) { using T = typename decltype(tag)::type; ... });
template <class F>
decltype(auto) visit_dtype(mt_dtype dtype, F&& f) {
  switch (dtype_key(dtype)) {
    case dtype_key(dtype_of<bool>):
      return f(TypeTag<bool>{});
    case dtype_key(dtype_of<uint8_t>):
      return f(TypeTag<uint8_t>{});
    case dtype_key(dtype_of<int8_t>):
      return f(TypeTag<int8_t>{});
    case dtype_key(dtype_of<int16_t>):
      return f(TypeTag<int16_t>{});
    case dtype_key(dtype_of<int32_t>):
      return f(TypeTag<int32_t>{});
    case dtype_key(dtype_of<int64_t>):
      return f(TypeTag<int64_t>{});
    case dtype_key(dtype_of<Half>):
      return f(TypeTag<Half>{});
    case dtype_key(dtype_of<BFloat16>):
      return f(TypeTag<BFloat16>{});
    case dtype_key(dtype_of<float>):
      return f(TypeTag<float>{});
    case dtype_key(dtype_of<double>):
      return f(TypeTag<double>{});
    default:
      break;
  }
  throw Error(MT_ERROR_TYPE, "a dtype of code " + std::to_string(dtype.code) + " and " +
                                 std::to_string(dtype.bits) + " bits is not supported");
}

// As visit_dtype, for the four floating types. Throws Error(MT_ERROR_TYPE) for another dtype.
template <class F>
decltype(auto) visit_floating(mt_dtype dtype, F&& f) {
  switch (dtype_key(dtype)) {
    case dtype_key(dtype_of<Half>):
      return f(TypeTag<Half>{});
    case dtype_key(dtype_of<BFloat16>):
      return f(TypeTag<BFloat16>{});
    case dtype_key(dtype_of<float>):
      return f(TypeTag<float>{});
    case dtype_key(dtype_of<double>):
      return f(TypeTag<double>{});
    default:
      break;
  }
  throw Error(MT_ERROR_TYPE, std::string("expected a floating dtype, got ") + dtype_name(dtype));
}

// Calls f(TypeTag<T>{}) with the unsigned integer of `bytes` bytes, for kernels that only move
// bytes. Throws Error(MT_ERROR_TYPE) for sizes other than 1, 2, 4 and 8.
template <class F>
decltype(auto) visit_itemsize(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(TypeTag<uint8_t>{});
    case 2:
      return f(TypeTag<uint16_t>{});
    case 4:
      return f(TypeTag<uint32_t>{});
    case 8:
      return f(TypeTag<uint64_t>{});
    default:
      break;
  }
  throw Error(MT_ERROR_TYPE, "elements of " + std::to_string(bytes) + " bytes are not supported");
}

// ---- conversions ----

// The type of computations with elements of T: float for the 16-bit floats, else T.
template <class T>
using Widened = std::conditional_t<is_reduced_float<T>, float, T>;

// Returns a + b. Integers wrap around, for bool it is "or".
template <class T>
inline T wrapping_add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return static_cast<T>(static_cast<Widened<T>>(a) + static_cast<Widened<T>>(b));
  }
}

// Returns the number converted as ATen converts element types. This is the definition for every
// in-tree backend:
//  * to bool: whether the number differs from zero (NaN does);
//  * floating to integer: truncated to int64 (NaN and numbers out of range give the smallest int64,
//    as on x86), then its low bits, so that -1.0 becomes the uint8 255 without undefined behaviour;
//  * between integers: the low bits;
//  * to the 16-bit floats: through float, each step rounding half to even.
template <class To, class From>
inline To convert(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (is_reduced_float<From>) {
    return convert<To>(static_cast<float>(from));
  } else if constexpr (is_reduced_float<To>) {
    return To(static_cast<float>(from));
  } else if constexpr (std::is_same_v<To, bool>) {
    return from != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const bool fits = from >= From(-0x1p63) && from < From(0x1p63);
    return static_cast<To>(fits ? static_cast<int64_t>(from) : std::numeric_limits<int64_t>::min());
  } else {
    return static_cast<To>(from);
  }
}

}  // namespace v1
}  // namespace mytorch::sdk
