// Remembers the tokens of short words.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/hash/hash.h"
#include "text/models.h"

namespace mytorch::text {

class WordCache {
 public:
  // A place in the table for a word.
  struct Place {
    uint64_t hash;
    size_t index;
    bool found;
  };

  static constexpr size_t kLongestWord = 64;

  Place find(std::string_view word) const {
    const uint64_t hash = absl::HashOf(word);
    size_t index = hash & (kSlots - 1);
    for (; slots_[index].tokens != 0; index = (index + 1) & (kSlots - 1)) {
      const Slot& slot = slots_[index];
      if (slot.hash == hash && std::string_view(words_).substr(slot.word, slot.length) == word) {
        return {hash, index, true};
      }
    }
    return {hash, index, false};
  }
  // Returns the tokens of a word that was found.
  std::span<const Token> tokens(Place place) const {
    const Slot& slot = slots_[place.index];
    return {&tokens_[slot.tokens], slot.count};
  }
  // Adds a word that was not found. Forgets all words once there are many.
  void add(Place place, std::string_view word, std::span<const Token> tokens) {
    if (size_ == kSlots / 2) {
      slots_.assign(kSlots, {});
      words_.clear();
      tokens_.resize(1);
      size_ = 0;
      place.index = place.hash & (kSlots - 1);
    }
    slots_[place.index] = {
        place.hash, static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(tokens_.size()),
        static_cast<uint16_t>(word.size()), static_cast<uint16_t>(tokens.size())};
    words_ += word;
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    ++size_;
  }

 private:
  static constexpr size_t kSlots = 1 << 15;
  struct Slot {
    uint64_t hash;
    uint32_t word;    // its begin in words_
    uint32_t tokens;  // their begin in tokens_; 0: the slot is free
    uint16_t length, count;
  };

  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
  std::string words_;
  std::vector<Token> tokens_ = std::vector<Token>(1);
  size_t size_ = 0;
};

}  // namespace mytorch::text
