#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace mytorch::text {

void AddedTokens::Finder::add(std::string_view text, uint32_t id) {
  if (text.empty()) return;
  first_[static_cast<unsigned char>(text[0])] = true;
  uint32_t state = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    State& next = states_[uint64_t{state} << 8 | static_cast<unsigned char>(text[i])];
    if (next.number == 0) next.number = static_cast<uint32_t>(states_.size());
    state = next.number;
    if (i + 1 == text.size()) {
      next.ends = true;
      next.id = id;
    }
  }
}

size_t AddedTokens::Finder::match(std::string_view text, size_t at, uint32_t& id) const {
  size_t length = 0;
  uint32_t state = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const State* next = states_.find(uint64_t{state} << 8 | static_cast<unsigned char>(text[i]));
    if (next == nullptr) break;
    state = next->number;
    if (next->ends) {
      length = i + 1 - at;
      id = next->id;
    }
  }
  return length;
}

void AddedTokens::read(const Json& json, const Vocabulary& vocabulary,
                       const Normalizer* normalizer) {
  if (json.is_null()) return;
  // As in the reference, new tokens are numbered in the order of the file, whatever ids it gives.
  auto next = static_cast<uint32_t>(vocabulary.size());
  json.each([&](const Json& each) {
    Added added;
    added.content = each.string("content");
    if (added.content.empty()) return;
    added.single_word = each.boolean("single_word", false);
    added.lstrip = each.boolean("lstrip", false);
    added.rstrip = each.boolean("rstrip", false);
    const bool special = each.boolean("special", false);
    added.is_normalized = each.boolean("normalized", !special);
    std::optional<uint32_t> id = find(added.content);
    if (!id) id = vocabulary.find(added.content);
    if (!id) {
      id = next++;
      ++extra_;
    }
    added.normalized = added.content;
    if (added.is_normalized && normalizer != nullptr) {
      AlignedText text;
      text.assign(added.content, 0);
      normalizer->apply(text);
      added.normalized = text.str();
    }
    ids_[added.content] = *id;
    if (special) special_.insert(added.content);
    tokens_[*id] = std::move(added);
  });
  for (const auto& [id, added] : tokens_) {
    finders_[added.is_normalized ? 1 : 0].add(added.normalized, id);
  }
}

bool AddedTokens::divide(std::string_view text, bool normalized, std::vector<Part>& parts) const {
  const Finder& finder = finders_[normalized ? 1 : 0];
  if (finder.empty()) return false;
  bool found = false;
  size_t done = 0;
  const auto add = [&](size_t begin, size_t end, std::optional<uint32_t> id) {
    if (begin != end) {
      parts.push_back({{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, id});
    }
  };
  for (size_t at = 0; at < text.size();) {
    uint32_t id = 0;
    const size_t length = finder.may_begin(text[at]) ? finder.match(text, at, id) : 0;
    if (length == 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    const Added& added = tokens_.find(id)->second;
    if (added.single_word) {
      size_t after = end;
      const bool word_before = begin > 0 && is_word(last_char(text, begin));
      const bool word_after = end < text.size() && is_word(next_char(text, after));
      if (word_before || word_after) continue;
    }
    if (added.lstrip) {
      while (begin > 0 && is_whitespace(last_char(text, begin))) {
        begin -= encoded_length(last_char(text, begin));
      }
      begin = std::max(begin, done);
    }
    if (added.rstrip) {
      for (size_t after = end; after < text.size() && is_whitespace(next_char(text, after));) {
        end = after;
      }
    }
    // Spaces to the right of a token may hide the begin of the next one.
    if (begin < done) continue;
    found = true;
    add(done, begin, std::nullopt);
    add(begin, end, id);
    done = end;
  }
  if (found) add(done, text.size(), std::nullopt);
  return found;
}

std::optional<uint32_t> AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* AddedTokens::token(uint32_t id, bool decoded) const {
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) return nullptr;
  return decoded ? &found->second.normalized : &found->second.content;
}

}  // namespace mytorch::text
