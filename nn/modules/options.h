// Formatting and checking of module options.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/nn/size2.h"

namespace mytorch::nn {

inline const char* text(bool value) { return value ? "true" : "false"; }

// Formats a size as "3", or as "(3, 5)" if height and width differ.
inline std::string text(const Size2& size) {
  if (size.height() == size.width()) return absl::StrCat(size.height());
  return absl::StrCat("(", size.height(), ", ", size.width(), ")");
}

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

}  // namespace mytorch::nn
