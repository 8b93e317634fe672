#include "text/normalizers.h"

#include <algorithm>
#include <array>

#include "text/charsmap.h"
#include "text/errors.h"
#include "text/regex.h"

namespace mytorch::text {
namespace normalizers {
namespace {

Piece whole(const AlignedText& text) { return {0, static_cast<uint32_t>(text.size())}; }

// Calls visit(c, begin, end) for each character.
template <class F>
void for_each_char(std::string_view text, F visit) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, at);
    visit(c, Piece{static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
  }
}

constexpr char32_t kRemoved = 0xffffffff;

// Replaces each character c by change(c), or removes it for kRemoved.
template <class F>
void map_chars(AlignedText& text, F change) {
  bool changes = false;
  for (size_t at = 0; at < text.size() && !changes;) {
    const char32_t c = next_char(text.str(), at);
    changes = change(c) != c;
  }
  if (!changes) return;
  Rewriter writer(text);
  for_each_char(text.str(), [&](char32_t c, Piece piece) {
    const char32_t changed = change(c);
    if (changed != kRemoved) writer.put(changed, text.align(piece.begin));
  });
  writer.finish();
}

void lowercase(AlignedText& text) {
  if (is_ascii(text.str())) {
    char* data = text.data();
    for (size_t i = 0; i < text.size(); ++i) {
      if (data[i] >= 'A' && data[i] <= 'Z') data[i] = static_cast<char>(data[i] + 32);
    }
    return;
  }
  Rewriter writer(text);
  for_each_char(text.str(), [&](char32_t c, Piece piece) {
    writer.put(to_lower(c), text.align(piece.begin));
    if (c == 0x130) writer.put(0x307, text.align(piece.begin));
  });
  writer.finish();
}

void apply_form(AlignedText& text, bool compatible, bool compose) {
  if (is_ascii(text.str())) return;
  const std::vector<Change> changes = normalize(text.str(), compatible, compose);
  Rewriter writer(text);
  writer.transform(whole(text), changes);
  writer.finish();
}

class Form final : public Normalizer {
 public:
  Form(bool compatible, bool compose) : compatible_(compatible), compose_(compose) {}
  void apply(AlignedText& text) const override { apply_form(text, compatible_, compose_); }

 private:
  bool compatible_, compose_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(AlignedText& text) const override { lowercase(text); }
};

class StripAccents final : public Normalizer {
 public:
  void apply(AlignedText& text) const override {
    map_chars(text, [](char32_t c) { return is_mark(c) ? kRemoved : c; });
  }
};

class Bert final : public Normalizer {
 public:
  explicit Bert(const Json& json)
      : clean_(json.boolean("clean_text", true)),
        chinese_(json.boolean("handle_chinese_chars", true)),
        lower_(json.boolean("lowercase", true)),
        strip_(json.boolean("strip_accents", lower_)) {}

  void apply(AlignedText& text) const override {
    if (is_ascii(text.str())) {
      apply_to_ascii(text);
      return;
    }
    if (clean_) clean(text);
    if (chinese_) separate_chinese(text);
    if (strip_) {
      apply_form(text, false, false);
      map_chars(text, [](char32_t c) { return is_nonspacing_mark(c) ? kRemoved : c; });
    }
    if (lower_) lowercase(text);
  }

 private:
  static void clean(AlignedText& text) {
    map_chars(text, [](char32_t c) -> char32_t {
      if (c == 0 || c == kReplacement || is_control(c)) return kRemoved;
      return is_whitespace(c) ? ' ' : c;
    });
  }
  void apply_to_ascii(AlignedText& text) const {
    if (clean_) {
      char* data = text.data();
      const bool removes = std::any_of(data, data + text.size(), [](char c) {
        return is_control(static_cast<unsigned char>(c));
      });
      if (removes) {
        clean(text);
      } else {
        std::replace_if(
            data, data + text.size(), [](char c) { return c >= 9 && c <= 13; }, ' ');
      }
    }
    if (lower_) lowercase(text);
  }
  static void separate_chinese(AlignedText& text) {
    bool found = false;
    for_each_char(text.str(), [&](char32_t c, Piece) { found = found || is_chinese(c); });
    if (!found) return;
    Rewriter writer(text);
    for_each_char(text.str(), [&](char32_t c, Piece piece) {
      const Piece align = text.align(piece.begin);
      if (is_chinese(c)) writer.put(" ", align);
      writer.put(c, align);
      if (is_chinese(c)) writer.put(" ", align);
    });
    writer.finish();
  }

  bool clean_, chinese_, lower_, strip_;
};

class Strip final : public Normalizer {
 public:
  explicit Strip(const Json& json)
      : left_(json.boolean("strip_left", true)), right_(json.boolean("strip_right", true)) {}
  void apply(AlignedText& text) const override {
    const std::string_view all = text.str();
    size_t begin = 0, end = all.size();
    while (left_ && begin < end) {
      size_t next = begin;
      if (!is_whitespace(next_char(all, next))) break;
      begin = next;
    }
    while (right_ && end > begin) {
      const char32_t last = last_char(all, end);
      if (!is_whitespace(last)) break;
      end -= encoded_length(last);
    }
    if (begin == 0 && end == all.size()) return;
    Rewriter writer(text);
    writer.copy({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    writer.finish();
  }

 private:
  bool left_, right_;
};

class Replace final : public Normalizer {
 public:
  explicit Replace(const Json& json)
      : pattern_(Regex::from_json(json.at("pattern"))), content_(json.string("content")) {}
  void apply(AlignedText& text) const override {
    if (text.empty()) return;
    std::vector<Match> parts;
    pattern_.split(text.str(), parts);
    if (parts.size() == 1 && !parts[0].is_match) return;
    Rewriter writer(text);
    for (const Match& part : parts) {
      const Piece piece = {static_cast<uint32_t>(part.begin), static_cast<uint32_t>(part.end)};
      if (!part.is_match) {
        writer.copy(piece);
      } else if (part.end > 0) {
        writer.put(content_, text.align(part.end - 1));
      } else {
        const uint32_t begin = text.align(0).begin;
        writer.put(content_, {begin, begin});
      }
    }
    writer.finish();
  }

 private:
  Regex pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(const Json& json) : prefix_(json.string("prepend")) {}
  void apply(AlignedText& text) const override {
    if (text.empty()) return;
    Rewriter writer(text);
    writer.put(prefix_, text.align(0));
    writer.copy(whole(text));
    writer.finish();
  }

 private:
  std::string prefix_;
};

class Nmt final : public Normalizer {
 public:
  void apply(AlignedText& text) const override {
    map_chars(text, [](char32_t c) -> char32_t {
      const auto in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
      if (in(1, 8) || c == 0xb || in(0xe, 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f) {
        return kRemoved;
      }
      const bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                         in(0x200b, 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                         c == 0xfeff || c == 0xfffd;
      return space ? ' ' : c;
    });
  }
};

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(const Json& json) : map_(json.string("precompiled_charsmap")) {}
  void apply(AlignedText& text) const override {
    const std::string_view all = text.str();
    if (map_.keeps_ascii() && is_ascii(all) && all.find('\r') == all.npos) return;
    std::vector<Change> changes;
    changes.reserve(all.size());
    bool changed = false;
    const auto replace = [&](std::string_view from, std::string_view to) {
      changed = true;
      const size_t first = changes.size();
      for (size_t at = 0; at < to.size();) changes.push_back({next_char(to, at), 0});
      const auto count = static_cast<ptrdiff_t>(changes.size() - first);
      const ptrdiff_t more = count - std::count_if(from.begin(), from.end(),
                                                   [](char c) { return !is_continuation(c); });
      // As in the reference, a removal without a replacement counts for the character before.
      if (more < 0 && !changes.empty()) changes.back().change += static_cast<int>(more);
      for (ptrdiff_t i = 0; i < more; ++i)
        changes[changes.size() - 1 - static_cast<size_t>(i)].change = 1;
    };
    size_t begin = 0;
    for (const size_t end : grapheme_ends(all)) {
      const std::string_view cluster = all.substr(begin, end - begin);
      begin = end;
      if (cluster.size() < 6) {
        if (const auto mapped = map_.find(cluster)) {
          replace(cluster, *mapped);
          continue;
        }
      }
      for_each_char(cluster, [&](char32_t c, Piece piece) {
        const std::string_view part = cluster.substr(piece.begin, piece.size());
        if (const auto mapped = map_.find(part)) {
          replace(part, *mapped);
        } else {
          changes.push_back({c, 0});
        }
      });
    }
    if (!changed) return;
    Rewriter writer(text);
    writer.transform(whole(text), changes);
    writer.finish();
  }

 private:
  Charsmap map_;
};

class ByteLevel final : public Normalizer {
 public:
  void apply(AlignedText& text) const override { map_bytes(text); }
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(const Json& json) {
    json.each("normalizers", [&](const Json& each) { all_.push_back(make_normalizer(each)); });
  }
  void apply(AlignedText& text) const override {
    for (const auto& each : all_) each->apply(text);
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> all_;
};

struct ByteTable {
  std::array<char32_t, 256> chars{};
  std::array<int, 512> bytes{};
  ByteTable() {
    bytes.fill(-1);
    char32_t other = 256;
    for (size_t byte = 0; byte < 256; ++byte) {
      const bool shown = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      chars[byte] = shown ? static_cast<char32_t>(byte) : other++;
      bytes[chars[byte]] = static_cast<int>(byte);
    }
  }
};
const ByteTable& byte_table() {
  static const ByteTable table;
  return table;
}

}  // namespace
}  // namespace normalizers

char32_t char_of_byte(unsigned char byte) { return normalizers::byte_table().chars[byte]; }
int byte_of_char(char32_t c) { return c < 512 ? normalizers::byte_table().bytes[c] : -1; }

void map_bytes(AlignedText& text) {
  const std::string_view all = text.str();
  if (std::all_of(all.begin(), all.end(), [](char c) { return c > ' ' && c < 0x7f; })) return;
  Rewriter writer(text);
  for (size_t i = 0; i < all.size(); ++i) {
    writer.put(char_of_byte(static_cast<unsigned char>(all[i])), text.align(i));
  }
  writer.finish();
}

std::unique_ptr<const Normalizer> make_normalizer(const Json& json) {
  using namespace normalizers;
  switch (json.choice(
      "type", {"BertNormalizer", "Strip", "StripAccents", "NFC", "NFD", "NFKC", "NFKD", "Sequence",
               "Lowercase", "Nmt", "Precompiled", "Replace", "Prepend", "ByteLevel"})) {
    case 0:
      return std::make_unique<Bert>(json);
    case 1:
      return std::make_unique<Strip>(json);
    case 2:
      return std::make_unique<StripAccents>();
    case 3:
      return std::make_unique<Form>(false, true);
    case 4:
      return std::make_unique<Form>(false, false);
    case 5:
      return std::make_unique<Form>(true, true);
    case 6:
      return std::make_unique<Form>(true, false);
    case 7:
      return std::make_unique<Sequence>(json);
    case 8:
      return std::make_unique<Lowercase>();
    case 9:
      return std::make_unique<Nmt>();
    case 10:
      return std::make_unique<Precompiled>(json);
    case 11:
      return std::make_unique<Replace>(json);
    case 12:
      return std::make_unique<Prepend>(json);
    default:
      return std::make_unique<ByteLevel>();
  }
}

}  // namespace mytorch::text
