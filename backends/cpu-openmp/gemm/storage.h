// Storage types of elements, their compute types, and scalar conversions.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace mytorch::cpu::gemm_internal {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};
// Two factors that follow one another in a sum, the first in the low half. The instruction of
// simd/bfloat16-inl.h multiplies pairs and adds both products.
struct BFloat16Pair {
  uint32_t bits;
};

// Integers are unsigned here: wrapping products and sums have the same bits as signed ones, and the
// low bits of narrow integers do not depend on how they were widened.
template <class T>
struct ComputeType {
  using type = T;
};
template <>
struct ComputeType<BFloat16> {
  using type = float;
};
template <>
struct ComputeType<Float16> {
  using type = float;
};
template <>
struct ComputeType<BFloat16Pair> {
  using type = float;
};
template <>
struct ComputeType<uint8_t> {
  using type = uint32_t;
};
template <>
struct ComputeType<uint16_t> {
  using type = uint32_t;
};
template <class T>
using Compute = typename ComputeType<T>::type;

// The steps of k that a factor of the microkernel spans.
template <class F>
inline constexpr int64_t kDepth = std::is_same_v<F, BFloat16Pair> ? 2 : 1;

// Whether the compute type is the storage type, so that kernels can read A and B in place and keep
// partial sums in C.
template <class T>
inline constexpr bool kComputesInPlace = std::is_same_v<T, Compute<T>>;

template <class T>
inline Compute<T> load_scalar(T x) {
  return static_cast<Compute<T>>(x);
}
inline float load_scalar(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
inline float load_scalar(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7FFFu) << 13;
  if (magnitude >= 0x7C00u << 13) {  // infinity or NaN
    return std::bit_cast<float>(sign | magnitude | 0x7F800000u);
  }
  // Multiplying by 2^112 moves the exponent to float's bias, and normalizes subnormals exactly.
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

template <class T>
inline void store_scalar(Compute<T> value, T* to) {
  *to = static_cast<T>(value);
}
template <>
inline void store_scalar<BFloat16>(float value, BFloat16* to) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) {
    to->bits = static_cast<uint16_t>((bits >> 16) | 0x40u);  // quiet, and never turned to infinity
    return;
  }
  to->bits = static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
template <>
inline void store_scalar<Float16>(float value, Float16* to) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  uint32_t result;
  if (magnitude > 0x7F800000u) {  // NaN
    result = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
  } else if (magnitude >= 0x47800000u) {  // at least 2^16; the carry below rounds [65520, 2^16) up
    result = 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal
    // Adding 0.5, whose last bit is worth 2^-24, lets the adder do the rounding.
    result = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  } else {
    result = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  }
  to->bits = static_cast<uint16_t>(sign | result);
}

}  // namespace mytorch::cpu::gemm_internal
