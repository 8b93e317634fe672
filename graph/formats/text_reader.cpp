#include "graph/formats/text_reader.h"

#include <charconv>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/types/checked.h"
#include "graph/symbols/number_form.h"

namespace mytorch::graph {

std::string TextReader::shown(std::string_view part) {
  constexpr size_t kMost = 40;
  const std::string escaped = absl::CEscape(piece(part.substr(0, kMost)));
  return absl::StrCat("'", escaped, part.size() > kMost ? "...'" : "'");
}

std::string TextReader::here() const {
  if (at_ == text_.size()) return "the end of the text";
  if (text_[at_] == '\n') return "the end of the line";
  size_t end = at_;
  while (end < text_.size() && is_word(text_[end])) ++end;
  return shown(text_.substr(at_, std::max<size_t>(end - at_, 1)));
}

void TextReader::skip(bool lines) {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) {
      ++at_;
    } else {
      return;
    }
  }
}

bool TextReader::take(char c) {
  if (!next_is(c)) return false;
  if (c == '(' || c == '[') ++depth_;
  if (c == ')' || c == ']') --depth_;
  ++at_;
  return true;
}

void TextReader::expect(char c, const char* where) {
  if (!take(c)) {
    refuse(here(), " stands where '", std::string(1, c), "' belongs, ", where);
  }
}

std::string_view TextReader::word() {
  skip(depth_ > 0);
  const size_t begin = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

bool TextReader::take_word(std::string_view expected) {
  const size_t begin = at_;
  if (word() == expected) return true;
  at_ = begin;
  return false;
}

std::string_view TextReader::digits() {
  skip(depth_ > 0);
  const size_t begin = at_;
  if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
  while (at_ < text_.size() && (is_word(text_[at_]) || ((text_[at_] == '-' || text_[at_] == '+') &&
                                                        (text_[at_ - 1] | 0x20) == 'e'))) {
    ++at_;
  }
  return text_.substr(begin, at_ - begin);
}

bool TextReader::next_is_symbol() {
  skip(depth_ > 0);
  const size_t begin = at_;
  const bool found = symbols_.contains(word());
  at_ = begin;
  return found;
}

int64_t TextReader::symbol() {
  skip(depth_ > 0);
  const size_t begin = at_;
  const auto found = symbols_.find(word());
  if (found == symbols_.end()) {
    at_ = begin;
    refuse(here(), " stands where a symbol belongs, which the first line of the graph defines");
  }
  return found->second;
}

int64_t TextReader::function() {
  const size_t begin = at_;
  const auto within = [&](Wide value) {
    if (value < std::numeric_limits<int64_t>::min() || value > std::numeric_limits<int64_t>::max())
      refuse_at(begin, "a function of sizes exceeds the range of int64");
    return value;
  };
  const auto is_digit = [&] {
    skip(depth_ > 0);
    return at_ < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[at_]));
  };
  const auto factor = [&] { return is_digit() ? count("a factor") : symbol(); };
  Wide sum = 0;
  bool minus = false;
  do {
    Wide term = factor();
    while (take('*')) term = within(term * factor());
    sum = within(minus ? sum - term : sum + term);
    minus = next_is('-');
  } while (take('+') || take('-'));
  if (take_word("over")) {
    const int64_t divisor = count("a divisor");
    if (divisor == 0 || sum % divisor != 0) {
      refuse_at(begin,
                "a function of sizes is no integer at these sizes: the graph holds for "
                "sizes at which it is");
    }
    sum /= divisor;
  }
  return static_cast<int64_t>(sum);
}

double TextReader::with_size(double factor, bool single) {
  NumberForm::Kind kind = NumberForm::kConstant;
  int64_t size = 0;
  if (!symbols_.empty() && (next_is('*') || next_is('/'))) {
    kind = take('*') ? NumberForm::kProduct : NumberForm::kQuotient;
    if (kind == NumberForm::kQuotient) expect('/', "before a size");
    if (kind == NumberForm::kQuotient && take_word("sqrt")) kind = NumberForm::kRootQuotient;
    expect('(', "before a function of sizes");
    size = function();
    expect(')', "after a function of sizes");
  }
  return number_at(kind, single, factor, size);
}

int64_t TextReader::integer(const char* what) {
  skip(depth_ > 0);
  if (!symbols_.empty() && next_is_symbol()) return function();
  const size_t begin = at_;
  const std::string_view found = digits();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (error == std::errc::result_out_of_range) {
    refuse_at(begin, shown(found), " exceeds the range of int64");
  }
  if (error != std::errc() || end != found.data() + found.size()) {
    at_ = begin;
    refuse(here(), " stands where ", what, " belongs: write an integer, such as 3");
  }
  return value;
}

int64_t TextReader::count(const char* what, int64_t limit) {
  skip(depth_ > 0);
  const size_t begin = at_;
  const int64_t value = integer(what);
  if (value < 0) refuse_at(begin, what, " is ", value, ": write a number from 0 on");
  if (value > limit) refuse_at(begin, what, " is ", value, ": the largest is ", limit);
  return value;
}

bool TextReader::parse_double(std::string_view text, double* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

double TextReader::real() {
  skip(depth_ > 0);
  const size_t begin = at_;
  const bool single = !symbols_.empty() && take_word("float32");
  double value = 0;
  if (!parse_double(digits(), &value)) {
    at_ = begin;
    refuse(here(), " stands where a number belongs: write one such as 0.5, inf or nan");
  }
  return with_size(value, single);
}

Scalar TextReader::scalar() {
  if (take('(')) {
    const double re = real();
    expect(',', "between the parts of a complex number");
    const double im = real();
    expect(')', "after a complex number");
    return Scalar::complex(re, im);
  }
  if (!symbols_.empty() && next_is_symbol()) return Scalar(function());
  const size_t begin = at_;
  const bool single = !symbols_.empty() && take_word("float32");
  const std::string_view found = digits();
  if (found == "true" || found == "false") return Scalar(found == "true");
  int64_t value = 0;
  const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (error == std::errc() && end == found.data() + found.size() && !found.empty()) {
    return Scalar(value);
  }
  double number = 0;
  if (parse_double(found, &number)) return Scalar(with_size(number, single));
  at_ = begin;
  skip(depth_ > 0);
  refuse(here(), " stands where a number belongs: write one such as 3, 0.5, true or (0., 1.)");
}

std::string TextReader::quoted() {
  expect('"', "at the begin of a string");
  const size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
    at_ += text_[at_] == '\\' ? 2 : 1;
  }
  if (at_ >= text_.size() || text_[at_] != '"') {
    at_ = begin;
    refuse("the string that begins here does not end on its line: write '\"' after it");
  }
  std::string found, problem;
  if (!absl::CUnescape(piece(text_.substr(begin, at_ - begin)), &found, &problem)) {
    refuse_at(begin, "the string has a wrong escape: ", problem);
  }
  ++at_;
  return found;
}

Device TextReader::device() {
  const size_t begin = at_;
  const std::string name(word());
  try {
    return Device(name);
  } catch (const Error& error) {
    refuse_at(begin, error.what());
  }
}

ScalarType TextReader::dtype() {
  skip(depth_ > 0);
  const size_t begin = at_;
  const std::string name(word());
  try {
    return dtype_from_name(name.c_str());
  } catch (const Error&) {
    refuse_at(begin, shown(name), " is no type: write one such as float32");
  }
}

}  // namespace mytorch::graph
