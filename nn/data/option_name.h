// Names of options with a fixed set of values.
#pragma once

#include <array>
#include <cstddef>

#include "core/types/errors.h"
#include "mytorch/list.h"

namespace mytorch::nn::data {

// Returns the index of `name` among `names`. Throws Error(kValue), listing them, if it is none.
template <size_t n>
size_t index_of_name(const char* option, Str name, const std::array<const char*, n>& names) {
  for (size_t i = 0; i < n; ++i) {
    if (name == names[i]) return i;
  }
  fail(ErrorCode::kValue, "[", option, "] '", name, "' is none of '", absl::StrJoin(names, "', '"),
       "'");
}

}  // namespace mytorch::nn::data
