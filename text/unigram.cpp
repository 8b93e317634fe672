#include <algorithm>
#include <limits>

#include "text/errors.h"
#include "text/key_map.h"
#include "text/models.h"
#include "text/unicode.h"

namespace mytorch::text {
namespace {

// The division into tokens with the highest sum of scores.
class Unigram final : public Model {
 public:
  explicit Unigram(const Json& json) {
    double lowest = std::numeric_limits<double>::infinity();
    json.at("vocab").each([&](const Json& entry) {
      std::string token;
      double score = 0;
      size_t size = 0;
      entry.each([&](const Json& part) {
        if (size == 0) token = part.string();
        if (size == 1) score = part.number();
        ++size;
      });
      if (size != 2) entry.fail_type("a token and its score");
      const auto id = static_cast<uint32_t>(scores_.size());
      lowest = std::min(lowest, score);
      scores_.push_back(score);
      insert(token, id);
      vocabulary_.add(std::move(token), id);
    });
    vocabulary_.finish();
    unknown_score_ = lowest - 10;
    if (json.has("unk_id")) {
      unknown_ = json.integer("unk_id");
      if (*unknown_ >= scores_.size()) {
        fail(ErrorCode::kIo, "'", json.path(), ".unk_id' is ", *unknown_,
             ", but the vocabulary has ", scores_.size(), " tokens");
      }
    }
    shown_as_text_ = unknown_;
    if (json.boolean("byte_fallback", false)) byte_tokens_ = byte_tokens();
  }

  void tokenize(std::string_view word, bool, std::vector<Token>& tokens,
                ModelScratch& scratch) const override {
    auto& nodes = scratch.nodes;
    nodes.assign(word.size() + 1, {0, 0, 0, false});
    const auto reach = [&](size_t begin, size_t end, uint32_t id, double score) {
      ModelScratch::Node& node = nodes[end];
      if (node.reached && score <= node.score) return;
      node = {score, static_cast<uint32_t>(begin), id, true};
    };
    for (size_t begin = 0; begin < word.size(); begin += char_length(word[begin])) {
      const double score = nodes[begin].score;
      const size_t next = begin + char_length(word[begin]);
      bool alone = false;
      uint32_t state = 0;
      for (size_t end = begin; end < word.size();) {
        const State* found = states_.find(key(state, word[end]));
        if (found == nullptr) break;
        ++end;
        state = found->number;
        if (found->id == kNone) continue;
        reach(begin, end, found->id, scores_[found->id] + score);
        alone = alone || end == next;
      }
      if (alone) continue;
      if (!unknown_) {
        fail(ErrorCode::kValue,
             "an unknown character, and the model has no unknown token ('unk_id')");
      }
      reach(begin, next, *unknown_, unknown_score_ + score);
    }
    auto& path = scratch.path;  // from the end
    path.clear();
    for (size_t end = word.size(); end > 0; end = nodes[end].begin) {
      const ModelScratch::Node& node = nodes[end];
      // Unknown characters side by side are one token.
      if (unknown_ && node.id == *unknown_ && !path.empty() && path.back().id == *unknown_) {
        path.back().begin = node.begin;
      } else {
        path.push_back({node.id, node.begin, static_cast<uint32_t>(end)});
      }
    }
    for (auto token = path.rbegin(); token != path.rend(); ++token) {
      if (unknown_ && token->id == *unknown_) {
        add_unknown(word.substr(token->begin, token->end - token->begin), *token, tokens);
      } else {
        tokens.push_back(*token);
      }
    }
  }

 private:
  static constexpr uint32_t kNone = ~0U;
  struct State {
    uint32_t number = 0;
    uint32_t id = kNone;
  };

  static uint64_t key(uint32_t state, char byte) {
    return uint64_t{state} << 8 | static_cast<unsigned char>(byte);
  }

  void insert(const std::string& token, uint32_t id) {
    uint32_t state = 0;
    for (size_t i = 0; i < token.size(); ++i) {
      State& next = states_[key(state, token[i])];
      if (next.number == 0) next.number = static_cast<uint32_t>(states_.size());
      if (i + 1 == token.size()) next.id = id;
      state = next.number;
    }
  }

  // Unknown tokens that are in the vocabulary as a whole get its id; others become bytes.
  void add_unknown(std::string_view text, const Token& token, std::vector<Token>& tokens) const {
    if (const auto id = vocabulary_.find(text)) {
      tokens.push_back({*id, token.begin, token.end});
      return;
    }
    const auto known = [this](char c) {
      return byte_tokens_[static_cast<unsigned char>(c)].has_value();
    };
    if (byte_tokens_.empty() || !std::all_of(text.begin(), text.end(), known)) {
      tokens.push_back(token);
      return;
    }
    for (const char c : text) {
      tokens.push_back({*byte_tokens_[static_cast<unsigned char>(c)], token.begin, token.end});
    }
  }

  std::vector<double> scores_;
  KeyMap<State> states_;
  double unknown_score_ = 0;
  std::optional<uint32_t> unknown_;
  std::vector<std::optional<uint32_t>> byte_tokens_;
};

}  // namespace

std::unique_ptr<const Model> make_unigram(const Json& json) {
  return std::make_unique<Unigram>(json);
}

}  // namespace mytorch::text
