// Throwing errors: fail(kShape, "[op] ...", values...) formats the message with abseil.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mytorch/error.h"
#include "mytorch/list.h"

namespace mytorch {

// Debian's abseil defines its own string_view.
template <class T>
const T& piece(const T& part) {
  return part;
}
inline absl::string_view piece(std::string_view part) { return {part.data(), part.size()}; }
inline absl::string_view piece(const Str& part) { return {part.data(), part.size()}; }
inline const std::string& piece(const std::string& part) { return part; }
template <size_t n>
inline const char* piece(const char (&part)[n]) {
  return part;
}

template <class... Args>
[[noreturn]] void fail(ErrorCode code, const Args&... parts) {
  throw Error(code, absl::StrCat(piece(parts)...));
}

// Formats a shape as in all messages: "(2, 3)", or "(2,)" for one dimension.
inline std::string shape_str(IntList sizes) {
  return absl::StrCat("(", absl::StrJoin(sizes, ", "), sizes.size() == 1 ? ",)" : ")");
}

// Maps a dimension argument from [-ndim, ndim) to [0, ndim). A 0-dim tensor accepts 0 and -1.
// Throws Error(kShape) if it is out of range.
inline int64_t wrap_dim(int64_t dim, int64_t ndim, const char* op) {
  const int64_t range = ndim == 0 ? 1 : ndim;
  if (dim < -range || dim >= range) {
    fail(ErrorCode::kShape, "[", op, "] dim ", dim, " is out of range for a tensor of ", ndim,
         " dimensions: give one from ", -range, " to ", range - 1);
  }
  return dim < 0 ? dim + range : dim;
}

}  // namespace mytorch
