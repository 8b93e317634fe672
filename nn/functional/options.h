// Formatting and checking of module options.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

inline const char* text(bool value) { return value ? "true" : "false"; }

// Formats sizes as "3", or as "(3, 5)" if they differ.
template <size_t n>
std::string text(const Sizes<n>& sizes) {
  return sizes == Sizes<n>(sizes[0]) ? absl::StrCat(sizes[0]) : shape_str(sizes);
}

template <size_t n>
std::string text(const ConvPadding<n>& padding) {
  return padding.same() ? "same" : text(padding.sizes());
}

namespace functional {
// Returns which of `rows` rows an option `padding_idx` names, counted from the first one. Throws
// Error(kValue) if it is none of them.
std::optional<int64_t> padding_row(std::optional<int64_t> index, int64_t rows, const char* name);
}  // namespace functional

// Returns the index of `name` among `names`. Throws Error(kValue), listing them, if it is none.
size_t index_of_name(const char* option, Str name, std::span<const char* const> names);

using NamedNumber = std::pair<const char*, int64_t>;

// Throws Error(kValue) for a number below `least`.
inline void check_at_least(const char* module, int64_t least,
                           std::initializer_list<NamedNumber> numbers) {
  for (const auto& [name, value] : numbers) {
    if (value < least) {
      fail(ErrorCode::kValue, "[", module, "] ", name, " is ", value, ": give at least ", least);
    }
  }
}

// Throws Error(kValue) for a size below `least`, or so large that products of two overflow.
template <size_t n>
void check_sizes(const char* module, int64_t least, const char* name, const Sizes<n>& sizes) {
  for (size_t i = 0; i < n; ++i) {
    check_at_least(module, least, {{name, sizes[i]}});
    if (sizes[i] > INT32_MAX) {
      fail(ErrorCode::kValue, "[", module, "] ", name, " is ", sizes[i], ": give at most ",
           INT32_MAX);
    }
  }
}

// Throws Error(kOutOfMemory) for more indices than a dimension can reasonably have.
inline void check_index_count(const char* op, int64_t count) {
  constexpr int64_t kMost = int64_t{1} << 28;
  if (count > kMost) {
    fail(ErrorCode::kOutOfMemory, "[", op, "] a dimension of ", count,
         " elements is larger than 2^28");
  }
}

// Throws Error(kValue) unless p is a probability.
inline void check_probability(const char* module, double p) {
  if (!(p >= 0 && p <= 1)) {
    fail(ErrorCode::kValue, "[", module, "] p is ", p, ": give a probability, from 0 to 1");
  }
}

}  // namespace mytorch::nn
