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

void tell(std::string_view text) {
  std::string line = "mytorch: ";
  line.append(text).push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void warn(std::string_view text) { tell(std::string("warning: ").append(text)); }

}  // namespace mytorch::detail
