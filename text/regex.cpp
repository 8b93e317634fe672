#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "text/errors.h"
#include "text/unicode.h"

namespace mytorch::text {
namespace {

constexpr size_t kLongestPattern = 1 << 16;
constexpr uint32_t kMatchLimit = 10'000'000;

// The members of Oniguruma's classes. PCRE2's \s and \w have other members.
constexpr std::string_view kSpace = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view kWord =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHex = "0-9a-fA-F";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else if (c == '[') {
        open_class();
      } else if (in_.substr(at_).starts_with("{,")) {
        out_ += "{0,";
        at_ += 2;
      } else if (c == '}' && in_.substr(at_).starts_with("}+")) {
        fail(ErrorCode::kUnsupported, "a repetition {...} followed by +");
      } else if (in_.substr(at_).starts_with("(?")) {
        group();
      } else {
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  void escape() {
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    at_ += 2;
    switch (c) {
      case 's':
        return members(kSpace, false);
      case 'w':
        return members(kWord, false);
      case 'h':
        return members(kHex, false);
      case 'S':
      case 'W':
      case 'H':
        if (in_class_ && c != 'H') break;
        return members(c == 'S' ? kSpace : c == 'W' ? kWord : kHex, true);
      case 'u':
        out_ += "\\x{";
        out_ += in_.substr(std::min(at_, in_.size()), 4);
        out_ += '}';
        at_ += 4;
        return;
      case '\0':
        break;
      default:
        break;
    }
    out_ += '\\';
    if (c != '\0') out_ += c;
    if ((c == 'p' || c == 'P' || c == 'x') &&
        in_.substr(std::min(at_, in_.size())).starts_with('{')) {
      const size_t end = std::min(in_.find('}', at_), in_.size() - 1) + 1;
      out_ += in_.substr(at_, end - at_);
      at_ = end;
    }
  }

  void members(std::string_view list, bool negated) {
    if (in_class_) {
      if (negated) fail(ErrorCode::kUnsupported, "the class \\H inside of brackets");
      out_ += list;
    } else {
      out_ += negated ? "[^" : "[";
      out_ += list;
      out_ += ']';
    }
  }

  void open_class() {
    in_class_ = true;
    out_ += '[';
    ++at_;
    if (at_ < in_.size() && in_[at_] == '^') out_ += in_[at_++];
    if (at_ < in_.size() && in_[at_] == ']') {
      out_ += "\\]";
      ++at_;
    }
  }

  void class_character(char c) {
    if (c == '[') {
      const size_t end = in_.find(":]", at_);
      if (!in_.substr(at_).starts_with("[:") || end == in_.npos) {
        fail(ErrorCode::kUnsupported, "a class inside of another class");
      }
      out_ += posix_members(in_.substr(at_, end + 2 - at_));
      at_ = end + 2;
      return;
    }
    if (in_.substr(at_).starts_with("&&")) {
      fail(ErrorCode::kUnsupported, "an intersection (&&) of classes");
    }
    in_class_ = c != ']';
    out_ += c;
    ++at_;
  }

  static std::string_view posix_members(std::string_view name) {
    const std::pair<std::string_view, std::string_view> all[] = {
        {"[:alpha:]", "\\p{Alphabetic}"},
        {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
        {"[:digit:]", "\\p{Nd}"},
        {"[:punct:]", "\\p{P}\\p{S}"},
        {"[:space:]", kSpace},
        {"[:word:]", kWord}};
    for (const auto& [known, members] : all) {
      if (name == known) return members;
    }
    if (name.starts_with("[:^")) fail(ErrorCode::kUnsupported, "the class ", name);
    return name;
  }

  // Oniguruma's option m is PCRE2's s.
  void group() {
    out_ += "(?";
    at_ += 2;
    const size_t end = in_.find_first_not_of("imx-", at_);
    if (end == in_.npos || (in_[end] != ':' && in_[end] != ')')) return;
    for (; at_ < end; ++at_) out_ += in_[at_] == 'm' ? 's' : in_[at_];
  }

  std::string_view in_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

struct MatchMemory {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  MatchMemory() {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, 1 << 16);  // KiB
  }
  ~MatchMemory() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  MatchMemory(const MatchMemory&) = delete;
  MatchMemory& operator=(const MatchMemory&) = delete;
};

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

Regex::Regex(const std::string& pattern) : Regex(pattern, false) {}
Regex Regex::literal(std::string_view text) { return Regex(std::string(text), true); }

Regex Regex::from_json(const Json& json) {
  if (json.has("String")) return literal(json.string("String"));
  return Regex(json.string("Regex"));
}

Regex::Regex(const std::string& pattern, bool literal) : pattern_(pattern) {
  if (pattern.size() > kLongestPattern) {
    fail(ErrorCode::kUnsupported, "a pattern of ", pattern.size(), " bytes; the limit is ",
         kLongestPattern);
  }
  const std::string translated = literal ? pattern : Translator(pattern).run();
  const uint32_t options = literal
                               ? PCRE2_UTF | PCRE2_LITERAL
                               : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE position = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                   translated.size(), options, &error, &position, context.get());
  if (code == nullptr) {
    fail(ErrorCode::kUnsupported, "the pattern '", pattern.substr(0, 200), "': ", message_of(error),
         " at byte ", position, " of '", translated.substr(0, 200), "'");
  }
  code_ =
      std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it, matching is only slower
}

void Regex::split(std::string_view text, std::vector<Match>& parts) const {
  thread_local const MatchMemory memory;
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  parts.clear();
  size_t done = 0;
  size_t at = 0;
  bool matched = false;  // at `done`
  while (at <= text.size()) {
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int found = pcre2_match(code, subject, text.size(), at, options, memory.data, memory.context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      options |= PCRE2_NO_JIT;
      found = pcre2_match(code, subject, text.size(), at, options, memory.data, memory.context);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      fail(ErrorCode::kValue, "the pattern '", pattern_.substr(0, 200), "' on a text of ",
           text.size(), " bytes: ", message_of(found));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(memory.data);
    const size_t begin = ends[0];
    const size_t end = ends[1];
    if (begin >= end || begin < done) {  // \K can move the begin
      // An empty match right after another match is none.
      if (begin == end && begin >= done && !(matched && begin == done)) {
        if (done != begin) parts.push_back({done, begin, false});
        parts.push_back({begin, begin, true});
        done = begin;
        matched = true;
      }
      at = std::max(at, end);
      at += at < text.size() ? char_length(text[at]) : 1;
      continue;
    }
    if (done != begin) parts.push_back({done, begin, false});
    parts.push_back({begin, end, true});
    done = at = end;
    matched = true;
  }
  if (done != text.size()) parts.push_back({done, text.size(), false});
}

}  // namespace mytorch::text
