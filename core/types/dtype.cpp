#include "mytorch/dtype.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <ostream>

#include "core/types/errors.h"
#include "mytorch/scalar.h"

namespace mytorch {

// Rounds to nearest, ties to even. NaN becomes a quiet NaN.
BFloat16::BFloat16(float value) {
  const uint32_t x = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) {
    bits = static_cast<uint16_t>((x >> 16) | 0x40);
  } else {
    bits = static_cast<uint16_t>((x + 0x7fff + ((x >> 16) & 1)) >> 16);
  }
}

BFloat16::operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }

Half::Half(float value) {
  const uint32_t x = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((x >> 16) & 0x8000);
  const uint32_t magnitude = x & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN
    bits = sign | 0x7e00 | static_cast<uint16_t>((x >> 13) & 0x1ff);
  } else if (magnitude >= 0x477ff000) {  // rounds to 65536 or more: infinity
    bits = sign | 0x7c00;
  } else if (magnitude < 0x38800000) {  // below 2^-14: a subnormal half, in units of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;  // exact
    bits = sign | static_cast<uint16_t>(std::nearbyint(scaled));
  } else {
    const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    bits = sign | static_cast<uint16_t>((rounded - 0x38000000) >> 13);
  }
}

Half::operator float() const {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

void detail::refuse_imaginary(double real, double imaginary) {
  fail(ErrorCode::kType, "[Scalar] ", real, " + ", imaginary,
       "i is no real number: take real() or imag(), or convert to std::complex");
}

std::ostream& operator<<(std::ostream& out, const Scalar& number) {
  if (number.is_bool()) return out << (number.to_bool() ? "true" : "false");
  if (number.is_int()) return out << number.to_int();
  if (number.is_float()) return out << number.to_double();
  return out << '(' << number.real() << ',' << number.imag() << ')';
}

ScalarType from_abi(mt_dtype dtype) {
  for (int i = 0; i < kNumScalarTypes; ++i) {
    if (dtype.lanes == 1 && same_dtype(detail::kDtypes[i].abi, dtype)) {
      return static_cast<ScalarType>(i);
    }
  }
  fail(ErrorCode::kType, "[dtype] no dtype has DLPack code ", int{dtype.code}, ", ",
       int{dtype.bits}, " bits, ", int{dtype.lanes}, " lanes");
}

ScalarType dtype_from_name(const char* name) {
  for (int i = 0; i < kNumScalarTypes; ++i) {
    if (std::strcmp(detail::kDtypes[i].name, name) == 0) return static_cast<ScalarType>(i);
  }
  std::string known;
  for (const auto& row : detail::kDtypes)
    absl::StrAppend(&known, known.empty() ? "" : ", ", row.name);
  fail(ErrorCode::kType, "[dtype] there is no dtype '", name, "'; known dtypes: ", known);
}

ScalarType promote_types(ScalarType a, ScalarType b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);  // now a precedes b in the enum
  if (is_complex(b)) return to_complex(a) == kComplex128 ? kComplex128 : b;
  if (is_floating_point(b)) {
    // Integers take the floating type of the other; float16 and bfloat16 promote to float32.
    return a == kFloat16 && b == kBFloat16 ? kFloat32 : b;
  }
  // uint8 and a signed type promote to a type that holds both.
  if (a == kUInt8 && b == kInt8) return kInt16;
  return b;
}

}  // namespace mytorch
