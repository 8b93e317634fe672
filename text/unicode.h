// UTF-8 and the properties of characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mytorch::text {

inline constexpr char32_t kReplacement = 0xfffd;

// The length of the character that begins with a byte of valid UTF-8.
inline size_t char_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }
inline size_t encoded_length(char32_t c) {
  return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

void append_utf8(std::string& text, char32_t c);
// Reads the character at `at` of valid UTF-8 and moves `at` past it.
inline char32_t next_char(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[i]));
  };
  const char32_t first = byte(at);
  if (first < 0x80) return ++at, first;
  if (first < 0xe0) return at += 2, (first & 0x1f) << 6 | (byte(at - 1) & 0x3f);
  if (first < 0xf0) {
    at += 3;
    return (first & 0x0f) << 12 | (byte(at - 2) & 0x3f) << 6 | (byte(at - 1) & 0x3f);
  }
  at += 4;
  return (first & 0x07) << 18 | (byte(at - 3) & 0x3f) << 12 | (byte(at - 2) & 0x3f) << 6 |
         (byte(at - 1) & 0x3f);
}
// Reads the last character that ends at `end`.
char32_t last_char(std::string_view text, size_t end);

// The length of the character, or of the maximal subpart of a broken one, at `at` of any bytes.
// Sets `valid`.
size_t any_char_length(std::string_view bytes, size_t at, bool& valid);
bool is_valid_utf8(std::string_view bytes);
// Replaces each maximal subpart of a broken character by U+FFFD. If `starts` is given, it receives
// the position in `bytes` of each byte of the result's character, and the end.
std::string repair_utf8(std::string_view bytes, std::vector<uint32_t>* starts = nullptr);
bool is_ascii(std::string_view text);

bool is_whitespace(char32_t c);  // White_Space
bool is_numeric(char32_t c);     // categories Nd, Nl, No
bool is_word(char32_t c);        // \w of regular expressions
// Categories of Unicode 9, as in the reference.
bool is_mark(char32_t c);  // Mn, Mc, Me
// Categories of Unicode 8, as in the reference.
bool is_punctuation(char32_t c);      // P, and ASCII symbols
bool is_nonspacing_mark(char32_t c);  // Mn
bool is_control(char32_t c);          // Cc, Cf, Co; not \t, \n, \r
bool is_chinese(char32_t c);          // as BERT's vocabularies understand it

// Returns the lowercase of a character, without its second character for U+0130.
char32_t to_lower(char32_t c);

struct Change {
  char32_t c;
  int change;  // 1: inserted; 0: replaces a character; -n: replaces it and n after it
};
// Returns the normalization form of Unicode 9 of valid UTF-8: NFD, or NFC with `compose`; NFKD or
// NFKC with `compatible`.
std::vector<Change> normalize(std::string_view text, bool compatible, bool compose);

// Returns the ends of the grapheme clusters of valid UTF-8.
std::vector<size_t> grapheme_ends(std::string_view text);

}  // namespace mytorch::text
