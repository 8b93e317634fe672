// Which numbers a type of integers has.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "mytorch/dtype.h"
#include "mytorch/scalar.h"

namespace mytorch {

namespace detail {
template <class T>
bool holds(const Scalar& number) {
  using Limits = std::numeric_limits<T>;
  if (number.is_float()) {
    const double whole = std::trunc(number.to_double());
    return whole >= static_cast<double>(Limits::min()) && whole < std::ldexp(1.0, Limits::digits);
  }
  return number.to_int() >= Limits::min() && number.to_int() <= Limits::max();
}
}  // namespace detail

// Returns whether a real number without its fraction is a value of the type. Types of floats have
// all numbers, rounded, and bool has them as true and false.
inline bool holds(ScalarType type, const Scalar& number) {
  switch (type) {
    case kUInt8:
      return detail::holds<uint8_t>(number);
    case kInt8:
      return detail::holds<int8_t>(number);
    case kInt16:
      return detail::holds<int16_t>(number);
    case kInt32:
      return detail::holds<int32_t>(number);
    case kInt64:
      return detail::holds<int64_t>(number);
    default:
      return true;
  }
}

// Writes a real number, for a message.
inline std::string number_text(const Scalar& number) {
  return number.is_float() ? absl::StrCat(number.to_double()) : absl::StrCat(number.to_int());
}

}  // namespace mytorch
