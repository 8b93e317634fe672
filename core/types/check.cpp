#include "mytorch/check.h"

#include <cstdio>

#include "core/types/errors.h"

namespace mytorch::detail {

void append(std::string& text, double part) {
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%g", part);
  text += digits;
}

void append(std::string& text, IntList part) { text += shape_str(part); }

void warn(const std::string& text) { std::fprintf(stderr, "mytorch: warning: %s\n", text.c_str()); }

}  // namespace mytorch::detail
