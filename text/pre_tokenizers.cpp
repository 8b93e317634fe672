#include "text/pre_tokenizers.h"

#include <algorithm>

#include "text/errors.h"
#include "text/normalizers.h"

namespace mytorch::text {

void Words::write_bytes() {
  bytes = false;
  Rewriter writer(text);
  for (Piece& piece : pieces) {
    const uint32_t begin = writer.size();
    for (uint32_t i = piece.begin; i < piece.end; ++i) {
      writer.put(char_of_byte(static_cast<unsigned char>(text.str()[i])), text.align(i));
    }
    piece = {begin, writer.size()};
  }
  writer.finish();
}

namespace pre_tokenizers {
namespace {

Piece piece_of(size_t begin, size_t end) {
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

// What becomes of the matches that divide a word.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior behavior_of(const Json& json) {
  return static_cast<Behavior>(json.choice(
      "behavior", {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}));
}

// Appends the parts of a word that begins at `at`, as `matches` divide it.
void divide(size_t at, const std::vector<Match>& matches, Behavior behavior,
            std::vector<Piece>& parts) {
  const auto add = [&](size_t begin, size_t end) {
    if (begin != end) parts.push_back(piece_of(at + begin, at + end));
  };
  if (behavior == Behavior::kRemoved || behavior == Behavior::kIsolated) {
    for (const Match& part : matches) {
      if (!part.is_match || behavior == Behavior::kIsolated) add(part.begin, part.end);
    }
    return;
  }
  const size_t count = matches.size();
  size_t begin = 0;  // of the part that is not added yet
  for (size_t i = 1; i <= count; ++i) {
    if (i < count) {
      const bool a = matches[i - 1].is_match, b = matches[i].is_match;
      // Merging with the next one looks from the end: a match joins the text after it.
      const bool joined = behavior == Behavior::kContiguous           ? a == b
                          : behavior == Behavior::kMergedWithPrevious ? b && !a
                                                                      : a && !b;
      if (joined) continue;
    }
    add(matches[begin].begin, matches[i - 1].end);
    begin = i;
  }
}

// Replaces each word by the parts that divide_word(word's text, its place, parts) appends.
template <class F>
void divide_words(Words& words, F divide_word) {
  if (words.bytes) words.write_bytes();
  words.next.clear();
  for (const Piece piece : words.pieces) {
    divide_word(words.text.str(piece), piece.begin, words.next);
  }
  words.pieces.swap(words.next);
}

// Divides words at the characters for which `is_match` holds.
template <class F>
void divide_at(Words& words, Behavior behavior, F is_match) {
  divide_words(words, [&](std::string_view word, size_t at, std::vector<Piece>& parts) {
    words.matches.clear();
    size_t begin = 0;  // of the text between two matches
    for (size_t i = 0; i < word.size();) {
      const size_t start = i;
      if (!is_match(next_char(word, i))) continue;
      if (begin != start) words.matches.push_back({begin, start, false});
      words.matches.push_back({start, i, true});
      begin = i;
    }
    if (begin != word.size()) words.matches.push_back({begin, word.size(), false});
    divide(at, words.matches, behavior, parts);
  });
}

void divide_at(Words& words, Behavior behavior, const Regex& pattern, bool inverted) {
  divide_words(words, [&](std::string_view word, size_t at, std::vector<Piece>& parts) {
    pattern.split(word, words.matches);
    if (inverted) {
      for (Match& match : words.matches) match.is_match = !match.is_match;
    }
    divide(at, words.matches, behavior, parts);
  });
}

// Divides at spaces, which are removed, and into runs of characters of equal kind(c);
// characters of kind 0 are parts of their own.
template <class F>
void divide_by_kind(Words& words, F kind) {
  divide_words(words, [&](std::string_view word, size_t at, std::vector<Piece>& parts) {
    size_t begin = 0;
    int before = -1;  // the space
    for (size_t i = 0; i < word.size();) {
      const size_t start = i;
      const char32_t c = next_char(word, i);
      const int now = is_whitespace(c) ? -1 : kind(c);
      if (now == before && now != 0) continue;
      if (before != -1) parts.push_back(piece_of(at + begin, at + start));
      begin = start;
      before = now;
    }
    if (before != -1) parts.push_back(piece_of(at + begin, at + word.size()));
  });
}

class Bert final : public PreTokenizer {
 public:
  void apply(Words& words) const override {
    divide_by_kind(words, [](char32_t c) { return is_punctuation(c) ? 0 : 1; });
  }
};

class Whitespace final : public PreTokenizer {
 public:
  void apply(Words& words) const override {
    divide_by_kind(words, [](char32_t c) { return is_word(c) ? 1 : 2; });
  }
};

class WhitespaceSplit final : public PreTokenizer {
 public:
  void apply(Words& words) const override {
    divide_by_kind(words, [](char32_t) { return 1; });
  }
};

class ByteLevel final : public PreTokenizer {
 public:
  explicit ByteLevel(const Json& json)
      : prefix_(json.boolean("add_prefix_space", true)),
        split_(json.boolean("use_regex", true)),
        pattern_(
            "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|"
            "\\s+") {}

  void apply(Words& words) const override {
    if (words.bytes) words.write_bytes();
    if (prefix_) add_prefix(words);
    if (split_) divide_at(words, Behavior::kIsolated, pattern_, false);
    words.bytes = true;
  }

 private:
  static void add_prefix(Words& words) {
    const auto has_prefix = [&](Piece piece) { return words.text.str()[piece.begin] == ' '; };
    if (std::all_of(words.pieces.begin(), words.pieces.end(), has_prefix)) return;
    Rewriter writer(words.text);
    for (Piece& piece : words.pieces) {
      const uint32_t begin = writer.size();
      if (!has_prefix(piece)) writer.put(" ", words.text.align(piece.begin));
      writer.copy(piece);
      piece = {begin, writer.size()};
    }
    writer.finish();
  }

  bool prefix_, split_;
  Regex pattern_;
};

class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(const Json& json) : split_(json.boolean("split", true)) {
    append_utf8(replacement_, json.character("replacement"));
    if (json.has("prepend_scheme")) {
      scheme_ = static_cast<Scheme>(json.choice("prepend_scheme", {"first", "never", "always"}));
    }
    if (!json.boolean("add_prefix_space", true)) scheme_ = Scheme::kNever;
  }

  void apply(Words& words) const override {
    if (words.bytes) words.write_bytes();
    Rewriter writer(words.text);
    const std::string& text = words.text.str();
    words.next.clear();
    for (const Piece piece : words.pieces) {
      uint32_t begin = writer.size();
      const bool has_prefix =
          text[piece.begin] == ' ' || words.text.str(piece).starts_with(replacement_);
      const Piece first = words.text.align(piece.begin);
      if (!has_prefix &&
          (scheme_ == Scheme::kAlways || (scheme_ == Scheme::kFirst && first.begin == 0))) {
        writer.put(replacement_, first);
      }
      for (uint32_t i = piece.begin; i < piece.end;) {
        uint32_t end = i;
        while (end < piece.end && text[end] != ' ' && !starts(text, end)) ++end;
        writer.copy({i, end});
        i = end;
        if (i == piece.end) break;
        // A separator: the word before it ends.
        if (split_ && writer.size() != begin) {
          words.next.push_back({begin, writer.size()});
          begin = writer.size();
        }
        writer.put(replacement_, words.text.align(i));
        i += text[i] == ' ' ? 1 : static_cast<uint32_t>(replacement_.size());
      }
      words.next.push_back({begin, writer.size()});
    }
    writer.finish();
    words.pieces.swap(words.next);
  }

 private:
  enum class Scheme { kFirst, kNever, kAlways };
  bool starts(const std::string& text, size_t at) const {
    return text[at] == replacement_[0] && text.compare(at, replacement_.size(), replacement_) == 0;
  }

  std::string replacement_;
  Scheme scheme_ = Scheme::kAlways;
  bool split_;
};

class Punctuation final : public PreTokenizer {
 public:
  explicit Punctuation(const Json& json)
      : behavior_(json.has("behavior") ? behavior_of(json) : Behavior::kIsolated) {}
  void apply(Words& words) const override { divide_at(words, behavior_, is_punctuation); }

 private:
  Behavior behavior_;
};

class Digits final : public PreTokenizer {
 public:
  explicit Digits(const Json& json)
      : behavior_(json.boolean("individual_digits", false) ? Behavior::kIsolated
                                                           : Behavior::kContiguous) {}
  void apply(Words& words) const override { divide_at(words, behavior_, is_numeric); }

 private:
  Behavior behavior_;
};

class Split final : public PreTokenizer {
 public:
  explicit Split(const Json& json)
      : pattern_(Regex::from_json(json.at("pattern"))),
        behavior_(behavior_of(json)),
        inverted_(json.boolean("invert", false)) {}
  void apply(Words& words) const override { divide_at(words, behavior_, pattern_, inverted_); }

 private:
  Regex pattern_;
  Behavior behavior_;
  bool inverted_;
};

class CharDelimiterSplit final : public PreTokenizer {
 public:
  explicit CharDelimiterSplit(const Json& json) : delimiter_(json.character("delimiter")) {}
  void apply(Words& words) const override {
    divide_at(words, Behavior::kRemoved, [this](char32_t c) { return c == delimiter_; });
  }

 private:
  char32_t delimiter_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(const Json& json)
      : length_(json.has("length") ? json.integer("length") : 5) {
    if (length_ == 0) json.at("length").fail_type("an integer of 1 or more");
  }
  void apply(Words& words) const override {
    divide_words(words, [this](std::string_view word, size_t at, std::vector<Piece>& parts) {
      for (size_t i = 0; i < word.size();) {
        const size_t begin = i;
        for (uint32_t n = 0; n < length_ && i < word.size(); ++n) i += char_length(word[i]);
        parts.push_back(piece_of(at + begin, at + i));
      }
    });
  }

 private:
  uint32_t length_;
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(const Json& json) {
    json.each("pretokenizers", [&](const Json& each) { all_.push_back(make_pre_tokenizer(each)); });
  }
  void apply(Words& words) const override {
    for (const auto& each : all_) each->apply(words);
  }

 private:
  std::vector<std::unique_ptr<const PreTokenizer>> all_;
};

}  // namespace
}  // namespace pre_tokenizers

std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const Json& json) {
  using namespace pre_tokenizers;
  switch (json.choice("type", {"BertPreTokenizer", "ByteLevel", "Whitespace", "WhitespaceSplit",
                               "Metaspace", "Punctuation", "Digits", "Split", "CharDelimiterSplit",
                               "FixedLength", "Sequence"})) {
    case 0:
      return std::make_unique<Bert>();
    case 1:
      return std::make_unique<ByteLevel>(json);
    case 2:
      return std::make_unique<Whitespace>();
    case 3:
      return std::make_unique<WhitespaceSplit>();
    case 4:
      return std::make_unique<Metaspace>(json);
    case 5:
      return std::make_unique<Punctuation>(json);
    case 6:
      return std::make_unique<Digits>(json);
    case 7:
      return std::make_unique<Split>(json);
    case 8:
      return std::make_unique<CharDelimiterSplit>(json);
    case 9:
      return std::make_unique<FixedLength>(json);
    default:
      return std::make_unique<Sequence>(json);
  }
}

}  // namespace mytorch::text
