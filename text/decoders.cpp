#include "text/decoders.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "text/normalizers.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace mytorch::text {
namespace decoders {
namespace {

// Replaces each occurrence; an empty `from` has none.
void replace_all(std::string& text, const std::string& from, const std::string& to) {
  if (!from.empty()) absl::StrReplaceAll({{from, to}}, &text);
}

// Removes the spaces before punctuation and English endings.
void clean_up(std::string& text) {
  if (text.find(' ') == text.npos) return;
  const std::pair<const char*, const char*> rules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : rules) replace_all(text, from, to);
}

class ByteLevel final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) {
      const size_t before = bytes.size();
      for (size_t at = 0; at < token.size();) {
        const int byte = byte_of_char(next_char(token, at));
        if (byte < 0) {  // such a token stands for itself
          bytes.resize(before);
          bytes += token;
          break;
        }
        bytes += static_cast<char>(byte);
      }
    }
    tokens.assign(1, is_valid_utf8(bytes) ? std::move(bytes) : repair_utf8(bytes));
  }
};

class WordPieceDecoder final : public Decoder {
 public:
  explicit WordPieceDecoder(const Json& json)
      : prefix_(json.string("prefix", "##")), cleans_(json.boolean("cleanup", true)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else if (i > 0) {
        token.insert(token.begin(), ' ');
      }
      if (cleans_) clean_up(token);
    }
  }

 private:
  std::string prefix_;
  bool cleans_;
};

class Metaspace final : public Decoder {
 public:
  explicit Metaspace(const Json& json) : replacement_(json.character("replacement")) {
    prepends_ = json.boolean("add_prefix_space", true);
    if (json.has("prepend_scheme")) {
      prepends_ = prepends_ && json.choice("prepend_scheme", {"first", "never", "always"}) != 1;
    }
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string text;
      for (size_t at = 0; at < tokens[i].size();) {
        const char32_t c = next_char(tokens[i], at);
        if (c != replacement_) {
          append_utf8(text, c);
        } else if (i > 0 || !prepends_) {
          text += ' ';
        }
      }
      tokens[i] = std::move(text);
    }
  }

 private:
  char32_t replacement_;
  bool prepends_;
};

class BpeDecoder final : public Decoder {
 public:
  explicit BpeDecoder(const Json& json) : suffix_(json.string("suffix", "</w>")) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }

 private:
  std::string suffix_;
};

class ByteFallback final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> result;
    std::string bytes;
    const auto finish = [&] {
      if (is_valid_utf8(bytes)) {
        if (!bytes.empty()) result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), "\xef\xbf\xbd");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = byte_of(token);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      finish();
      result.push_back(std::move(token));
    }
    finish();
    tokens.swap(result);
  }

 private:
  // Returns the byte of a token <0x41>, or -1.
  static int byte_of(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    int byte = 0;
    for (const char c : token.substr(3, 2)) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return -1;
      byte = 16 * byte + digit;
    }
    return byte;
  }
};

class Fuse final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    tokens.assign(1, absl::StrJoin(tokens, ""));
  }
};

class Strip final : public Decoder {
 public:
  explicit Strip(const Json& json) : start_(json.size("start")), stop_(json.size("stop")) {
    append_utf8(content_, json.character("content"));
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      size_t begin = 0, end = token.size();
      for (size_t i = 0; i < start_ && has(token, begin, end); ++i) begin += content_.size();
      for (size_t i = 0;
           i < stop_ && end >= begin + content_.size() && has(token, end - content_.size(), end);
           ++i) {
        end -= content_.size();
      }
      token = token.substr(begin, end - begin);
    }
  }

 private:
  bool has(const std::string& token, size_t at, size_t end) const {
    return at + content_.size() <= end && token.compare(at, content_.size(), content_) == 0;
  }

  std::string content_;
  size_t start_, stop_;
};

class Replace final : public Decoder {
 public:
  explicit Replace(const Json& json)
      : pattern_(Regex::from_json(json.at("pattern"))), content_(json.string("content")) {}
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<Match> parts;
    for (std::string& token : tokens) {
      if (token.empty()) continue;
      pattern_.split(token, parts);
      std::string text;
      for (const Match& part : parts) {
        text += part.is_match ? content_ : token.substr(part.begin, part.end - part.begin);
      }
      token = std::move(text);
    }
  }

 private:
  Regex pattern_;
  std::string content_;
};

class Ctc final : public Decoder {
 public:
  explicit Ctc(const Json& json)
      : pad_(json.string("pad_token", "<pad>")),
        delimiter_(json.string("word_delimiter_token", "|")),
        cleans_(json.boolean("cleanup", true)) {}
  void apply(std::vector<std::string>& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      replace_all(token, pad_, "");
      if (!cleans_) continue;
      clean_up(token);
      replace_all(token, delimiter_, " ");
    }
    std::erase(tokens, "");
  }

 private:
  std::string pad_, delimiter_;
  bool cleans_;
};

class Sequence final : public Decoder {
 public:
  explicit Sequence(const Json& json) {
    json.each("decoders", [&](const Json& each) { all_.push_back(make_decoder(each)); });
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& each : all_) each->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<const Decoder>> all_;
};

}  // namespace
}  // namespace decoders

std::unique_ptr<const Decoder> make_decoder(const Json& json) {
  using namespace decoders;
  switch (json.choice("type", {"ByteLevel", "WordPiece", "Metaspace", "BPEDecoder", "ByteFallback",
                               "Fuse", "Strip", "Replace", "CTC", "Sequence"})) {
    case 0:
      return std::make_unique<ByteLevel>();
    case 1:
      return std::make_unique<WordPieceDecoder>(json);
    case 2:
      return std::make_unique<Metaspace>(json);
    case 3:
      return std::make_unique<BpeDecoder>(json);
    case 4:
      return std::make_unique<ByteFallback>();
    case 5:
      return std::make_unique<Fuse>();
    case 6:
      return std::make_unique<Strip>(json);
    case 7:
      return std::make_unique<Replace>(json);
    case 8:
      return std::make_unique<Ctc>(json);
    default:
      return std::make_unique<Sequence>(json);
  }
}

}  // namespace mytorch::text
