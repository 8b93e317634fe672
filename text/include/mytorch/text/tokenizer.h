// Tokenizers that are read from a tokenizer.json file.
//
//   auto tokenizer = text::Tokenizer::from_file("model/tokenizer.json");
//   text::Encoding encoding = tokenizer.encode("Hello, world");
//   Tensor ids = tensor(encoding.ids);
//   std::string text = tokenizer.decode(encoding.ids);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mytorch/std_function.h"

namespace mytorch::text {

// A range of bytes.
struct Range {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

// The tokens of a text. All lists have the same length.
struct Encoding {
  std::vector<int64_t> ids;
  std::vector<int64_t> type_ids;             // 1 for the second text of a pair, for most models
  std::vector<std::string> tokens;           // empty if EncodeOptions::tokens is false
  std::vector<Range> offsets;                // the bytes of the input; {0, 0} for tokens not in it
  std::vector<int64_t> attention_mask;       // 0 for padding
  std::vector<int64_t> special_tokens_mask;  // 1 for tokens that are not in the input

  size_t size() const { return ids.size(); }
};

struct EncodeOptions {
  bool add_special_tokens = true;  // such as [CLS] and [SEP]
  bool tokens = true;              // fill Encoding::tokens
  size_t threads = 0;              // of encode_batch; 0: as many as the machine has
};

enum class Side { kLeft, kRight };

struct Truncation {
  enum class Strategy { kLongestFirst, kOnlyFirst, kOnlySecond };
  size_t max_length = 512;  // includes the special tokens
  Strategy strategy = Strategy::kLongestFirst;
  Side direction = Side::kRight;  // the side from which tokens are removed
};

struct Padding {
  std::optional<size_t> length = std::nullopt;  // nullopt: the longest encoding of the batch
  std::optional<size_t> multiple_of = std::nullopt;
  Side direction = Side::kRight;
  int64_t id = 0;
  int64_t type_id = 0;
  std::string token = "[PAD]";
};

// Splits texts into tokens and joins tokens into texts. Copies share the vocabulary. Safe to use
// from several threads, except for the functions that change truncation and padding.
//
// Texts are UTF-8. Each maximal subpart of a broken character counts as U+FFFD.
class Tokenizer {
 public:
  // Throws Error(kIo) if the file cannot be read or is damaged, Error(kUnsupported) if it uses a
  // component that is not supported; the message lists those that are.
  static Tokenizer from_file(const std::string& path);
  static Tokenizer from_json(std::string_view json);

  // Throws Error(kValue) if the text has no encoding: it contains an unknown word and the model has
  // no unknown token, truncation is impossible, or the text is 2 GiB or longer.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  Encoding encode(std::string_view text, std::string_view pair,
                  const EncodeOptions& options = {}) const;
  // Encodes the texts in several threads. Padding pads them to equal lengths.
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     const EncodeOptions& options = {}) const;
  std::vector<Encoding> encode_batch(std::span<const std::pair<std::string, std::string>> pairs,
                                     const EncodeOptions& options = {}) const;

  // Returns the text of the tokens. Ignores ids that are not in the vocabulary.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = true) const;
  std::vector<std::string> decode_batch(std::span<const std::vector<int64_t>> batch,
                                        bool skip_special_tokens = true) const;

  std::optional<int64_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int64_t id) const;
  // Returns the number of tokens, with or without the tokens that were added to the model's.
  size_t vocab_size(bool with_added_tokens = true) const;

  // The file may enable both.
  void enable_truncation(const Truncation& truncation);
  void enable_padding(const Padding& padding);
  void no_truncation() { truncation_.reset(); }
  void no_padding() { padding_.reset(); }
  const std::optional<Truncation>& truncation() const { return truncation_; }
  const std::optional<Padding>& padding() const { return padding_; }

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state);
  Encoding encode_unpadded(std::string_view text, const std::string_view* pair,
                           const EncodeOptions& options) const;
  std::vector<Encoding> encode_all(
      size_t count, const EncodeOptions& options,
      const std::function<Encoding(size_t, const EncodeOptions&)>& encode_one) const;

  std::shared_ptr<const State> state_;
  std::optional<Truncation> truncation_;
  std::optional<Padding> padding_;
};

// Decodes tokens one by one, as a model generates them.
class DecodeStream {
 public:
  explicit DecodeStream(Tokenizer tokenizer, bool skip_special_tokens = true);

  // Returns the text that the token completes; empty while a character is incomplete.
  std::string step(int64_t id);
  // Returns the rest, with U+FFFD for an incomplete character, and starts anew.
  std::string finish();

 private:
  std::string decode() const;

  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::vector<int64_t> ids_;  // those that may affect the text of the next one
  size_t finished_ = 0;       // the number of ids whose text was returned
  std::string prefix_;        // their text
};

}  // namespace mytorch::text
