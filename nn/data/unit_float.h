// Bytes as floats in [0, 1].
#pragma once

#include <cstdint>

namespace mytorch::nn::data {

// Computes x / 255 exactly rounded, without dividing. A product with 1/255 is off by one ulp for
// half of the values, so 1/255 is split into a sum whose first part has so few bits that its
// product is exact.
inline constexpr float kHigh = 0x1.01p-8f;
inline constexpr float kLow = static_cast<float>(1.0 / 255.0 - 0x1.01p-8);
constexpr float unit_float(uint8_t x) {
  const auto value = static_cast<float>(x);
  return value * kHigh + value * kLow;
}
constexpr bool is_division() {
  for (int x = 0; x < 256; ++x) {
    if (unit_float(static_cast<uint8_t>(x)) != static_cast<float>(x) / 255.0f) return false;
  }
  return true;
}
static_assert(is_division());

inline void to_unit_floats(const uint8_t* __restrict from, float* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = unit_float(from[i]);
}

}  // namespace mytorch::nn::data
