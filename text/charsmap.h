// The compiled rules of SentencePiece's normalization: a double array trie of the replaced strings,
// and the replacements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mytorch::text {

class Charsmap {
 public:
  // Throws Error(kIo) if the rules are damaged.
  explicit Charsmap(std::string_view base64);
  // Returns the replacement of the shortest rule that is a prefix of the text, as the reference
  // does.
  std::optional<std::string_view> find(std::string_view text) const;
  bool keeps_ascii() const { return keeps_ascii_; }

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends with a zero byte
  bool keeps_ascii_ = false;
};

}  // namespace mytorch::text
