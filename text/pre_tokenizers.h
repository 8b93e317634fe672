// The pre-tokenizers of tokenizer.json: they divide a text into words.
#pragma once

#include <memory>
#include <vector>

#include "text/aligned_text.h"
#include "text/json.h"
#include "text/regex.h"

namespace mytorch::text {

// A text and its words, which are not empty. Pre-tokenizers divide the words and may rewrite the
// text; then its words are all that remains of it.
struct Words {
  AlignedText text;
  std::vector<Piece> pieces;
  // Whether the words stand for their byte-level form, in which each byte is a character. Writing
  // it is rarely necessary.
  bool bytes = false;

  // Scratch.
  std::vector<Piece> next;
  std::vector<Match> matches;

  // Writes the byte-level form.
  void write_bytes();
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Words& words) const = 0;
};

// Throws Error(kUnsupported) for a type that is not supported.
std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const Json& json);

}  // namespace mytorch::text
