// The tokens that are found in a text before the model sees it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "text/aligned_text.h"
#include "text/json.h"
#include "text/key_map.h"
#include "text/models.h"
#include "text/normalizers.h"

namespace mytorch::text {

class AddedTokens {
 public:
  // A part of a text: an added token, or the text between two.
  struct Part {
    Piece piece;
    std::optional<uint32_t> id;
  };

  // Reads the list of added tokens; null means none.
  void read(const Json& json, const Vocabulary& vocabulary, const Normalizer* normalizer);

  // Divides a text at the tokens that match before (`normalized` false) or after normalization.
  // Returns false, and leaves `parts` alone, if there are none.
  bool divide(std::string_view text, bool normalized, std::vector<Part>& parts) const;

  std::optional<uint32_t> find(std::string_view content) const;
  // Returns null if the id is no added token. `decoded`: as decoders see it, which is normalized.
  const std::string* token(uint32_t id, bool decoded) const;
  bool is_special(const std::string& content) const { return special_.contains(content); }
  // The number of tokens that are not in the model's vocabulary.
  size_t extra() const { return extra_; }

 private:
  struct Added {
    std::string content, normalized;
    bool single_word = false, lstrip = false, rstrip = false, is_normalized = false;
  };
  // Finds the longest of a set of strings.
  class Finder {
   public:
    void add(std::string_view text, uint32_t id);
    bool may_begin(char c) const { return first_[static_cast<unsigned char>(c)]; }
    bool empty() const { return states_.size() == 0; }
    // Returns the length of the longest match at `at`, or 0, and its id.
    size_t match(std::string_view text, size_t at, uint32_t& id) const;

   private:
    struct State {
      uint32_t number = 0;
      bool ends = false;
      uint32_t id = 0;
    };
    KeyMap<State> states_;
    bool first_[256] = {};
  };

  absl::flat_hash_map<uint32_t, Added> tokens_;
  absl::flat_hash_map<std::string, uint32_t> ids_;
  absl::flat_hash_set<std::string> special_;
  Finder finders_[2];  // before and after normalization
  size_t extra_ = 0;
};

}  // namespace mytorch::text
