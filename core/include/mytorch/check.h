// Checks of arguments in programs, and text made of parts.
//
//   MYTORCH_CHECK(x.dim() == 2, "x has shape ", x.sizes(), ": it must be a matrix");
//
// Parts are text, numbers, shapes, types, devices and tensors.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/error.h"
#include "mytorch/list.h"
#include "mytorch/tensor.h"
#include "mytorch/version.h"

namespace mytorch {
namespace detail {

void append(std::string& text, double part);  // six digits, as streams write them
void append(std::string& text, IntList part);

template <class T>
void append_part(std::string& text, const T& part) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    text += std::string_view(part);
  } else if constexpr (std::is_same_v<T, char>) {
    text += part;
  } else if constexpr (std::is_integral_v<T>) {
    text += std::to_string(part);
  } else if constexpr (std::is_floating_point_v<T>) {
    append(text, static_cast<double>(part));
  } else if constexpr (std::is_same_v<T, ScalarType>) {
    text += dtype_name(part);
  } else if constexpr (requires {
                         { part.str() } -> std::convertible_to<std::string>;
                       }) {
    text += part.str();
  } else {
    append(text, IntList(part));
  }
}

// Writes "mytorch: " and the text as a line to stderr, at once, so that lines of processes and
// threads that share it do not mix: printf of newer C libraries writes a long line in pieces.
void tell(std::string_view text);
void warn(std::string_view text);  // tells a "warning: "

}  // namespace detail

// Returns the parts as one text.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::string text;
  (detail::append_part(text, parts), ...);
  return text;
}

}  // namespace mytorch

// Throws Error(kValue) with the text of the parts unless the condition holds.
#define MYTORCH_CHECK(condition, ...) \
  MYTORCH_CHECK_WITH(kValue, condition, #condition __VA_OPT__(, ) __VA_ARGS__)
// The same with other codes: for a value or a position, a type, what is not implemented, and what a
// program itself guarantees.
#define MYTORCH_CHECK_VALUE(condition, ...) \
  MYTORCH_CHECK_WITH(kValue, condition, #condition __VA_OPT__(, ) __VA_ARGS__)
#define MYTORCH_CHECK_INDEX(condition, ...) \
  MYTORCH_CHECK_WITH(kValue, condition, #condition __VA_OPT__(, ) __VA_ARGS__)
#define MYTORCH_CHECK_TYPE(condition, ...) \
  MYTORCH_CHECK_WITH(kType, condition, #condition __VA_OPT__(, ) __VA_ARGS__)
#define MYTORCH_CHECK_NOT_IMPLEMENTED(condition, ...) \
  MYTORCH_CHECK_WITH(kUnsupported, condition, #condition __VA_OPT__(, ) __VA_ARGS__)
#define MYTORCH_INTERNAL_ASSERT(condition, ...) \
  MYTORCH_CHECK_WITH(kInternal, condition, #condition __VA_OPT__(, ) __VA_ARGS__)
// Takes the condition's text, since an argument that is passed on is expanded.
#define MYTORCH_CHECK_WITH(code, condition, text, ...)                                  \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      throw ::mytorch::Error(::mytorch::ErrorCode::code,                                \
                             ::mytorch::str("[" text "] " __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)

// Writes a warning to the standard error stream; MYTORCH_WARN_ONCE does so once in the process.
#define MYTORCH_WARN(...) ::mytorch::detail::warn(::mytorch::str(__VA_ARGS__))
#define MYTORCH_WARN_ONCE(...)                                                   \
  do {                                                                           \
    [[maybe_unused]] static const bool told = (MYTORCH_WARN(__VA_ARGS__), true); \
  } while (false)
