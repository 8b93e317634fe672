// The models of tokenizer.json: they divide words into tokens.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "text/json.h"

namespace mytorch::text {

// A token of a word: its bytes in the word.
struct Token {
  uint32_t id;
  uint32_t begin;
  uint32_t end;
};

// The tokens of a model.
class Vocabulary {
 public:
  // Reads {"token": id}.
  static Vocabulary from_object(const Json& json);
  void add(std::string token, uint32_t id);
  // Makes the tokens findable. Throws Error(kIo) if the ids are too sparse for a table.
  void finish();

  size_t size() const { return ids_.size(); }
  std::optional<uint32_t> find(std::string_view token) const;
  // Returns null if there is no such id.
  const std::string* token(uint32_t id) const {
    return id < by_id_.size() && by_id_[id] >= 0 ? &tokens_[static_cast<size_t>(by_id_[id])]
                                                 : nullptr;
  }
  size_t longest() const { return longest_; }  // in bytes
  template <class F>
  void each(F visit) const {
    for (size_t i = 0; i < tokens_.size(); ++i) visit(tokens_[i], numbers_[i]);
  }

 private:
  std::vector<std::string> tokens_;
  std::vector<uint32_t> numbers_;  // the ids of tokens_
  absl::flat_hash_map<std::string_view, uint32_t> ids_;
  std::vector<int32_t> by_id_;
  size_t longest_ = 0;
};

// Buffers that models use for one word.
struct ModelScratch {
  struct Symbol {
    uint32_t id;
    int32_t before, after;  // -1: none
    uint32_t length;        // 0: merged into the one before
  };
  struct Merge {
    uint32_t rank, place, id;
  };
  struct Node {
    double score;
    uint32_t begin, id;
    bool reached;
  };
  std::vector<Symbol> symbols;
  std::vector<Merge> merges;
  std::vector<Node> nodes;
  std::vector<Token> path;
  std::string text;
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the tokens of a word. `bytes`, only if reads_bytes(): the word stands for its
  // byte-level form. Throws Error(kValue) if it has an unknown part and the model has no unknown
  // token.
  virtual void tokenize(std::string_view word, bool bytes, std::vector<Token>& tokens,
                        ModelScratch& scratch) const = 0;
  virtual bool reads_bytes() const { return false; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Returns the id of the tokens that are shown as their text in place of the vocabulary's.
  std::optional<uint32_t> shown_as_text() const { return shown_as_text_; }

 protected:
  // The ids of <0x00> ... <0xFF> in the vocabulary.
  std::vector<std::optional<uint32_t>> byte_tokens() const;

  Vocabulary vocabulary_;
  std::optional<uint32_t> shown_as_text_;
};

// Throws Error(kUnsupported) for a type that is not supported.
std::unique_ptr<const Model> make_model(const Json& json);
std::unique_ptr<const Model> make_bpe(const Json& json);
std::unique_ptr<const Model> make_unigram(const Json& json);
std::unique_ptr<const Model> make_word_piece(const Json& json);
std::unique_ptr<const Model> make_word_level(const Json& json);

}  // namespace mytorch::text
