// The tokenizer of BERT's uncased models, for texts in Latin letters.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

// Splits text into words and punctuation, in lower case and without accents, and words into the
// longest pieces of the vocabulary (Wu et al., "Google's neural machine translation system", 2016).
// Letters of other scripts keep their case and accents.
class WordPiece {
 public:
  // Reads vocab.txt, a token in each line. Throws Error(kIo).
  explicit WordPiece(const std::string& path);
  // Returns at most `longest` ids, from [CLS] to [SEP].
  std::vector<int64_t> encode(const std::string& text, size_t longest) const;

 private:
  int64_t id_of(const std::string& token) const;
  void add_word(const std::vector<std::string>& letters, std::vector<int64_t>& ids) const;

  std::unordered_map<std::string, int64_t> ids_;
  int64_t cls_ = 0, sep_ = 0, unknown_ = 0;
};
