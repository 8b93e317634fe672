#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "text/errors.h"

namespace mytorch::text {

void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
  }
  put(0x80 | (c & 0x3f));
}

char32_t last_char(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && is_continuation(text[end]));
  return next_char(text, end);
}

size_t any_char_length(std::string_view bytes, size_t at, bool& valid) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = byte(at);
  valid = true;
  if (first < 0x80) return 1;
  valid = false;
  if (first < 0xc2 || first > 0xf4) return 1;
  const size_t length = char_length(bytes[at]);
  // The second byte of some characters has a smaller range.
  const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < length; ++i) {
    if (at + i >= bytes.size()) return i;
    const unsigned char next = byte(at + i);
    if (i == 1 ? next < low || next > high : (next & 0xc0) != 0x80) return i;
  }
  valid = true;
  return length;
}

bool is_ascii(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + i, 8);
    if ((bytes & 0x8080808080808080u) != 0) return false;
  }
  return std::all_of(text.begin() + static_cast<ptrdiff_t>(i), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_valid_utf8(std::string_view bytes) {
  if (is_ascii(bytes)) return true;
  bool valid = true;
  for (size_t at = 0; at < bytes.size();) {
    at += any_char_length(bytes, at, valid);
    if (!valid) return false;
  }
  return true;
}

std::string repair_utf8(std::string_view bytes, std::vector<uint32_t>* starts) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    bool valid = true;
    const size_t length = any_char_length(bytes, at, valid);
    if (valid) {
      text.append(bytes.substr(at, length));
    } else {
      append_utf8(text, kReplacement);
    }
    if (starts != nullptr) starts->resize(text.size(), static_cast<uint32_t>(at));
    at += length;
  }
  if (starts != nullptr) starts->push_back(static_cast<uint32_t>(bytes.size()));
  return text;
}

namespace {

struct CharRange {
  char32_t first;
  char32_t last;
};

#include "text/unicode_differences.inc"

template <size_t n>
bool is_in(const CharRange (&ranges)[n], char32_t c) {
  const CharRange* found = std::lower_bound(
      ranges, ranges + n, c, [](const CharRange& range, char32_t x) { return range.last < x; });
  return found != ranges + n && found->first <= c;
}

const utf8proc_property_t& properties(char32_t c) {
  return *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
}

// A set of categories of utf8proc.
template <class... Categories>
constexpr uint32_t set_of(Categories... categories) {
  return (... | (1U << categories));
}
bool has_category(char32_t c, uint32_t set) { return (1U << properties(c).category & set) != 0; }

constexpr uint32_t kMarks =
    set_of(UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_ME);
constexpr uint32_t kNumbers =
    set_of(UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NO);
constexpr uint32_t kWords =
    kMarks | set_of(UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT,
                    UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_LO, UTF8PROC_CATEGORY_ND,
                    UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_PC);
constexpr uint32_t kPunctuations =
    set_of(UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PD, UTF8PROC_CATEGORY_PS, UTF8PROC_CATEGORY_PE,
           UTF8PROC_CATEGORY_PI, UTF8PROC_CATEGORY_PF, UTF8PROC_CATEGORY_PO);
constexpr uint32_t kControls =
    set_of(UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_CO);

}  // namespace

bool is_whitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return has_category(c, kNumbers);
}

bool is_mark(char32_t c) {
  return c >= 0x300 && has_category(c, kMarks) != is_in(kMarkDifferences, c);
}

bool is_word(char32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  // The others are alphabetic symbols, and the joiners.
  return has_category(c, kWords) || (c >= 0x24b6 && c <= 0x24e9) ||
         (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
         (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c || c == 0x200d;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7f && !(is_word(c) && c != '_');
  return has_category(c, kPunctuations) != is_in(kPunctuationDifferences, c);
}

bool is_nonspacing_mark(char32_t c) {
  return c >= 0x300 &&
         has_category(c, set_of(UTF8PROC_CATEGORY_MN)) != is_in(kNonspacingDifferences, c);
}

bool is_control(char32_t c) {
  if (c < 0x80) return (c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
  return has_category(c, kControls) != is_in(kControlDifferences, c);
}

bool is_chinese(char32_t c) {
  const auto in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  return c >= 0x3400 && (in(0x4e00, 0x9fff) || in(0x3400, 0x4dbf) || in(0x20000, 0x2a6df) ||
                         in(0x2a700, 0x2b73f) || in(0x2b740, 0x2b81f) || in(0x2b920, 0x2ceaf) ||
                         in(0xf900, 0xfaff) || in(0x2f800, 0x2fa1f));
}

char32_t to_lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c == 0x130) return 'i';
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

// ---- normalization ----

namespace {

struct Part {
  Change change;
  int combining;
};

int combining_class(char32_t c) {
  if (c < 0x300) return 0;
  const int combining = properties(c).combining_class;
  return combining != 0 && is_in(kNormalizationDifferences, c) ? 0 : combining;
}

// Returns the number of characters, or 0 if the character has no decomposition.
int decompose_char(char32_t c, bool compatible, utf8proc_int32_t (&parts)[32]) {
  if (c < 0xa0) return 0;
  const bool hangul = c >= 0xac00 && c <= 0xd7a3;
  if (!hangul && properties(c).decomp_seqindex == UINT16_MAX) return 0;
  if (is_in(kNormalizationDifferences, c)) return 0;
  int last_class = 0;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, options, &last_class);
  if (count < 1 || count > 32) fail(ErrorCode::kInternal, "utf8proc: a long decomposition");
  return static_cast<int>(count);
}

// Returns the composition of two characters, or 0.
char32_t compose_pair(char32_t a, char32_t b) {
  const bool jamo = b >= 0x1161 && b <= 0x11c2;
  if (b < 0x300 || (!jamo && properties(b).comb_index == UINT16_MAX)) return 0;
  utf8proc_int32_t pair[2] = {static_cast<utf8proc_int32_t>(a), static_cast<utf8proc_int32_t>(b)};
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      pair, 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  const auto whole = static_cast<char32_t>(pair[0]);
  return count != 1 || is_in(kNormalizationDifferences, whole) ? 0 : whole;
}

// Reordering keeps each character's change.
std::vector<Part> decompose(std::string_view text, bool compatible) {
  std::vector<Part> parts;
  parts.reserve(text.size());
  size_t sorted = 0;
  const auto sort = [&] {
    std::stable_sort(parts.begin() + static_cast<ptrdiff_t>(sorted), parts.end(),
                     [](const Part& a, const Part& b) { return a.combining < b.combining; });
    sorted = parts.size();
  };
  const auto put = [&](char32_t c, int change) {
    const int combining = combining_class(c);
    if (combining == 0 && sorted < parts.size()) sort();
    parts.push_back({{c, change}, combining});
    if (combining == 0) sorted = parts.size();
  };
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, at);
    utf8proc_int32_t buffer[32];
    const int count = decompose_char(c, compatible, buffer);
    if (count == 0) put(c, 0);
    for (int i = 0; i < count; ++i) put(static_cast<char32_t>(buffer[i]), i == 0 ? 0 : 1);
  }
  sort();
  return parts;
}

// A composed character takes the changes of its parts.
std::vector<Change> compose_parts(const std::vector<Part>& parts) {
  std::vector<Change> result;
  result.reserve(parts.size());
  size_t base = parts.size();  // of the result; parts.size(): none
  int last = -1;               // the combining class of the part before; -1: it is the base
  for (const Part& part : parts) {
    if (base != parts.size() && (last < 0 || last < part.combining)) {
      const char32_t whole = compose_pair(result[base].c, part.change.c);
      if (whole != 0) {
        result[base] = {whole, result[base].change + part.change.change - 1};
        continue;
      }
    }
    if (part.combining == 0) {
      base = result.size();
      last = -1;
    } else {
      last = part.combining;
    }
    result.push_back(part.change);
  }
  return result;
}

}  // namespace

std::vector<Change> normalize(std::string_view text, bool compatible, bool compose) {
  const std::vector<Part> parts = decompose(text, compatible);
  if (compose) return compose_parts(parts);
  std::vector<Change> result;
  result.reserve(parts.size());
  for (const Part& part : parts) result.push_back(part.change);
  return result;
}

std::vector<size_t> grapheme_ends(std::string_view text) {
  std::vector<size_t> ends;
  utf8proc_int32_t state = 0;
  char32_t before = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, at);
    if (begin > 0 && utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before),
                                                      static_cast<utf8proc_int32_t>(c), &state)) {
      ends.push_back(begin);
    }
    before = c;
  }
  if (!text.empty()) ends.push_back(text.size());
  return ends;
}

}  // namespace mytorch::text
