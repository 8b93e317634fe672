// Errors of the room.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "mytorch/error.h"

namespace mytorch::text {

// Abseil may have its own string_view.
template <class Part>
const Part& part_of(const Part& part) {
  return part;
}
inline absl::string_view part_of(std::string_view part) { return {part.data(), part.size()}; }

template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  throw Error(code, absl::StrCat("[Tokenizer] ", part_of(parts)...));
}

}  // namespace mytorch::text
