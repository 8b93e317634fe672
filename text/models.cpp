#include "text/models.h"

#include "text/errors.h"
#include "text/unicode.h"

namespace mytorch::text {

Vocabulary Vocabulary::from_object(const Json& json) {
  Vocabulary vocabulary;
  json.each_field(
      [&](const std::string& token, const Json& id) { vocabulary.add(token, id.integer()); });
  vocabulary.finish();
  return vocabulary;
}

void Vocabulary::add(std::string token, uint32_t id) {
  longest_ = std::max(longest_, token.size());
  tokens_.push_back(std::move(token));
  numbers_.push_back(id);
}

void Vocabulary::finish() {
  ids_.reserve(tokens_.size());
  const size_t limit = 16 * tokens_.size() + (1 << 16);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    ids_[tokens_[i]] = numbers_[i];
    if (numbers_[i] >= limit) {
      fail(ErrorCode::kIo, "the vocabulary of ", tokens_.size(), " tokens has the id ", numbers_[i],
           "; the limit is ", limit - 1);
    }
    if (numbers_[i] >= by_id_.size()) by_id_.resize(numbers_[i] + 1, -1);
    by_id_[numbers_[i]] = static_cast<int32_t>(i);
  }
}

std::optional<uint32_t> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::vector<std::optional<uint32_t>> Model::byte_tokens() const {
  std::vector<std::optional<uint32_t>> ids;
  for (size_t byte = 0; byte < 256; ++byte) {
    const char digits[] = "0123456789ABCDEF";
    ids.push_back(
        vocabulary_.find(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + '>'));
  }
  return ids;
}

namespace {

class WordPiece final : public Model {
 public:
  explicit WordPiece(const Json& json)
      : unknown_(json.string("unk_token", "[UNK]")),
        prefix_(json.string("continuing_subword_prefix", "##")),
        longest_word_(json.has("max_input_chars_per_word") ? json.size("max_input_chars_per_word")
                                                           : 100) {
    vocabulary_ = Vocabulary::from_object(json.at("vocab"));
  }

  void tokenize(std::string_view word, bool, std::vector<Token>& tokens,
                ModelScratch& scratch) const override {
    size_t count = 0;
    for (const char c : word) count += is_continuation(c) ? 0 : 1;
    const size_t before = tokens.size();
    size_t begin = count > longest_word_ ? word.size() + 1 : 0;
    while (begin < word.size()) {
      scratch.text = begin == 0 ? "" : prefix_;
      scratch.text += word.substr(begin, vocabulary_.longest());
      const size_t skipped = begin == 0 ? 0 : prefix_.size();
      size_t end = scratch.text.size();
      std::optional<uint32_t> id;
      for (; end > skipped; --end) {
        // The cut at the longest token may be inside of a character.
        if (begin + end - skipped < word.size() && is_continuation(word[begin + end - skipped])) {
          continue;
        }
        id = vocabulary_.find(std::string_view(scratch.text).substr(0, end));
        if (id) break;
      }
      if (!id) break;
      const size_t next = begin + end - skipped;
      tokens.push_back({*id, static_cast<uint32_t>(begin), static_cast<uint32_t>(next)});
      begin = next;
    }
    if (begin == word.size()) return;
    const auto unknown = vocabulary_.find(unknown_);
    if (!unknown) {
      fail(ErrorCode::kValue, "an unknown word, and the vocabulary has no token '", unknown_, "'");
    }
    tokens.resize(before);
    tokens.push_back({*unknown, 0, static_cast<uint32_t>(word.size())});
  }

 private:
  std::string unknown_, prefix_;
  size_t longest_word_;
};

class WordLevel final : public Model {
 public:
  explicit WordLevel(const Json& json) : unknown_(json.string("unk_token", "<unk>")) {
    vocabulary_ = Vocabulary::from_object(json.at("vocab"));
  }

  void tokenize(std::string_view word, bool, std::vector<Token>& tokens,
                ModelScratch&) const override {
    auto id = vocabulary_.find(word);
    if (!id) id = vocabulary_.find(unknown_);
    if (!id) {
      fail(ErrorCode::kValue, "an unknown word, and the vocabulary has no token '", unknown_, "'");
    }
    tokens.push_back({*id, 0, static_cast<uint32_t>(word.size())});
  }

 private:
  std::string unknown_;
};

}  // namespace

std::unique_ptr<const Model> make_word_piece(const Json& json) {
  return std::make_unique<WordPiece>(json);
}
std::unique_ptr<const Model> make_word_level(const Json& json) {
  return std::make_unique<WordLevel>(json);
}

std::unique_ptr<const Model> make_model(const Json& json) {
  // Old files have no type.
  if (!json.has("type")) {
    if (json.has("merges")) return make_bpe(json);
    if (json.has("unk_id")) return make_unigram(json);
    if (json.has("continuing_subword_prefix")) return make_word_piece(json);
  }
  switch (json.choice("type", {"BPE", "WordPiece", "Unigram", "WordLevel"})) {
    case 0:
      return make_bpe(json);
    case 1:
      return make_word_piece(json);
    case 2:
      return make_unigram(json);
    default:
      return make_word_level(json);
  }
}

}  // namespace mytorch::text
