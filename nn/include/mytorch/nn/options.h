// Types of module options.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/list.h"

namespace mytorch::nn {

// One number for each of `n` spatial dimensions: `3`, which sets all of them, or `{3, 5}`.
template <size_t n>
class Sizes {
 public:
  template <mytorch::detail::Integer T>
  constexpr Sizes(T all) {  // NOLINT: Conv2d(1, 16, 3)
    values_.fill(static_cast<int64_t>(all));
  }
  template <mytorch::detail::Integer... T>
  requires(n > 1 && sizeof...(T) == n) constexpr Sizes(T... sizes)
      : values_{static_cast<int64_t>(sizes)...} {}
  operator IntList() const { return {values_.data(), n}; }  // NOLINT: operators take lists
  constexpr int64_t operator[](size_t i) const { return values_[i]; }
  constexpr void set(size_t i, int64_t size) { values_[i] = size; }
  constexpr bool operator==(const Sizes&) const = default;

 private:
  std::array<int64_t, n> values_{};
};

// Sizes, or absent.
template <size_t n>
class OptionalSizes {
 public:
  constexpr OptionalSizes() = default;
  constexpr OptionalSizes(const Sizes<n>& sizes) : present_(true), sizes_(sizes) {}  // NOLINT
  template <mytorch::detail::Integer... T>
  requires(sizeof...(T) == 1 || sizeof...(T) == n) constexpr OptionalSizes(T... sizes)  // NOLINT
      : OptionalSizes(Sizes<n>(sizes...)) {}
  constexpr Sizes<n> value_or(const Sizes<n>& other) const { return present_ ? sizes_ : other; }

 private:
  bool present_ = false;
  Sizes<n> sizes_ = 0;
};

// The padding of a convolution: sizes, "valid" (none), or "same", which gives the output the size
// of the input.
template <size_t n>
class ConvPadding {
 public:
  constexpr ConvPadding(const Sizes<n>& sizes) : sizes_(sizes) {}  // NOLINT
  template <mytorch::detail::Integer... T>
  requires(sizeof...(T) == 1 || sizeof...(T) == n) constexpr ConvPadding(T... sizes)  // NOLINT
      : sizes_(sizes...) {}
  // Throws Error(kValue) for any other text.
  template <class T>
  requires(std::is_convertible_v<const T&, Str>) ConvPadding(const T& text)  // NOLINT
      : ConvPadding(Str(text)) {}
  ConvPadding(Str text);  // NOLINT
  constexpr bool same() const { return same_; }
  constexpr const Sizes<n>& sizes() const { return sizes_; }  // 0 if same()

 private:
  bool same_ = false;
  Sizes<n> sizes_ = 0;
};

// A constant of an enumeration, or its name in PyTorch: `Reduction::kSum` or "sum". Throws
// Error(kValue), listing the names, for any other text.
template <class Enum>
class OneOf {
 public:
  constexpr OneOf(Enum value) : value_(value) {}  // NOLINT
  template <class T>
  requires(std::is_convertible_v<const T&, Str>) OneOf(const T& text)  // NOLINT
      : value_(from_name(Str(text), Enum{})) {}
  constexpr operator Enum() const { return value_; }  // NOLINT

 private:
  Enum value_;
};

// One value, `2`, or a list of them, `{2, 3}`.
template <class T>
class OneOrMore {
 public:
  OneOrMore() = default;
  OneOrMore(T one) : values_{one} {}                                // NOLINT
  OneOrMore(std::initializer_list<T> values) : values_(values) {}   // NOLINT
  OneOrMore(std::vector<T> values) : values_(std::move(values)) {}  // NOLINT
  const std::vector<T>& values() const { return values_; }

 private:
  std::vector<T> values_;
};

enum class PaddingMode { kZeros, kReflect, kReplicate, kCircular };
PaddingMode from_name(Str name, PaddingMode);  // NOLINT: named by its type
const char* name_of(PaddingMode mode);

}  // namespace mytorch::nn
