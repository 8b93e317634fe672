// Reads a text piece by piece: words, numbers, strings, types. What is wrong is an Error with line
// and column.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "core/types/errors.h"
#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/scalar.h"

namespace mytorch::graph {

class TextReader {
 protected:
  explicit TextReader(std::string_view text) : text_(text) {}

  // ---- characters ----

  template <class... Parts>
  [[noreturn]] void refuse_at(size_t at, const Parts&... parts) const {
    const std::string_view before = text_.substr(0, at);
    const size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
    fail(ErrorCode::kValue, "[graph] line ", std::count(before.begin(), before.end(), '\n') + 1,
         ", column ", at - begin + 1, ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    refuse_at(at_, parts...);
  }
  // A part of the text for messages.
  static std::string shown(std::string_view part);
  // What stands here, for messages.
  std::string here() const;

  static bool is_word(char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == ':';
  }
  // Skips blanks and comments, and ends of lines if `lines`.
  void skip(bool lines);
  bool next_is(char c) {
    skip(depth_ > 0);
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c);
  void expect(char c, const char* where);
  std::string_view word();
  bool take_word(std::string_view expected);
  // Calls `item` for each item of a list that `close` ends, after its begin.
  template <class F>
  void list(char close, const F& item) {
    if (take(close)) return;
    do {
      item();
    } while (take(','));
    expect(close, close == ']' ? "after the last item of a list" : "after the last argument");
  }

  // ---- numbers, which may be functions of symbols ----

  // Returns the characters of a number.
  std::string_view digits();
  // Returns whether a symbol stands here, and its value.
  bool next_is_symbol();
  int64_t symbol();
  // Reads the rest of a function of symbols, such as "n*t - 1", or "n + 1 over 2".
  int64_t function();
  // Applies a function of symbols that follows a number, as in "1./(n)".
  double with_size(double factor, bool single);
  int64_t integer(const char* what);
  int64_t count(const char* what, int64_t limit = std::numeric_limits<int64_t>::max());
  static bool parse_double(std::string_view text, double* value);
  double real();
  Scalar scalar();
  std::string quoted();

  // ---- types and devices ----

  Device device();
  ScalarType dtype();

  std::string_view text_;
  size_t at_ = 0;
  std::map<std::string, int64_t, std::less<>> symbols_;  // their values
  int depth_ = 0;                                        // of brackets, within which lines may end
};

}  // namespace mytorch::graph
