// Regular expressions in the syntax of tokenizer.json (Oniguruma's), on PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json.h"

namespace mytorch::text {

// A part of a text: a match, or what lies between two.
struct Match {
  size_t begin;
  size_t end;
  bool is_match;
};

// Immutable. Safe to use from several threads.
class Regex {
 public:
  // Throws Error(kUnsupported) if the pattern is invalid.
  explicit Regex(const std::string& pattern);
  static Regex literal(std::string_view text);
  // Reads {"String": text} or {"Regex": pattern}.
  static Regex from_json(const Json& json);

  // Divides valid UTF-8 into matches and the rest. Throws Error(kValue) if matching takes too long.
  void split(std::string_view text, std::vector<Match>& parts) const;

 private:
  Regex(const std::string& pattern, bool literal);

  std::string pattern_;
  std::shared_ptr<void> code_;
};

}  // namespace mytorch::text
