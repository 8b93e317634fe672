#include <algorithm>

#include "text/errors.h"
#include "text/key_map.h"
#include "text/models.h"
#include "text/normalizers.h"
#include "text/unicode.h"

namespace mytorch::text {
namespace {

// Byte pair encoding: the symbols of a word are merged in the order of the file.
class Bpe final : public Model {
 public:
  explicit Bpe(const Json& json)
      : prefix_(json.string("continuing_subword_prefix", "")),
        suffix_(json.string("end_of_word_suffix", "")),
        fuse_unknown_(json.boolean("fuse_unk", false)),
        ignore_merges_(json.boolean("ignore_merges", false)) {
    if (json.has("dropout") && json.at("dropout").number() != 0) {
      fail(ErrorCode::kUnsupported, "'", json.path(),
           ".dropout' is not supported: set it to null for tokens that depend on the text alone");
    }
    vocabulary_ = Vocabulary::from_object(json.at("vocab"));
    if (json.has("unk_token")) {
      unknown_name_ = json.string("unk_token");
      has_unknown_ = true;
      unknown_ = vocabulary_.find(unknown_name_);
    }
    if (json.boolean("byte_fallback", false)) byte_tokens_ = byte_tokens();
    read_merges(json.at("merges"));
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string token;
      append_utf8(token, char_of_byte(static_cast<unsigned char>(byte)));
      raw_bytes_.push_back(vocabulary_.find(token));
    }
    simple_bytes_ = prefix_.empty() && suffix_.empty() &&
                    std::all_of(raw_bytes_.begin(), raw_bytes_.end(),
                                [](const auto& id) { return id.has_value(); });
  }

  bool reads_bytes() const override { return true; }

  void tokenize(std::string_view word, bool bytes, std::vector<Token>& tokens,
                ModelScratch& scratch) const override {
    if (word.empty()) return;
    if (ignore_merges_) {
      std::string_view token = word;
      if (bytes) {
        scratch.text.clear();
        for (const char c : word) {
          append_utf8(scratch.text, char_of_byte(static_cast<unsigned char>(c)));
        }
        token = scratch.text;
      }
      if (const auto id = vocabulary_.find(token)) {
        tokens.push_back({*id, 0, static_cast<uint32_t>(word.size())});
        return;
      }
    }
    scratch.symbols.clear();
    if (bytes && simple_bytes_) {
      for (const char c : word) add(scratch, *raw_bytes_[static_cast<unsigned char>(c)], 1);
    } else {
      add_symbols(word, bytes, scratch);
    }
    merge(scratch);
    const auto size = static_cast<uint32_t>(word.size());
    uint32_t begin = 0;
    for (const ModelScratch::Symbol& symbol : scratch.symbols) {
      if (symbol.length == 0) continue;
      // The bytes of a suffix are not in the word.
      const uint32_t end = std::min(begin + symbol.length, size);
      tokens.push_back({symbol.id, begin, end});
      begin = end;
    }
  }

 private:
  struct Target {
    uint32_t rank = 0;
    uint32_t id = 0;
  };

  static uint64_t key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

  void read_merges(const Json& json) {
    uint32_t rank = 0;
    std::string whole;
    json.each([&](const Json& merge) {
      std::string left, right;
      if (merge.is_string()) {
        const std::string line = merge.string();
        if (line.starts_with("#version")) return;
        const size_t space = line.find(' ');
        if (space == line.npos || line.find(' ', space + 1) != line.npos) {
          merge.fail_type("two tokens");
        }
        left = line.substr(0, space);
        right = line.substr(space + 1);
      } else {
        size_t size = 0;
        merge.each([&](const Json& part) { (size++ == 0 ? left : right) = part.string(); });
        if (size != 2) merge.fail_type("two tokens");
      }
      whole = left;
      if (right.size() >= prefix_.size()) whole += std::string_view(right).substr(prefix_.size());
      const auto a = vocabulary_.find(left), b = vocabulary_.find(right);
      const auto id = vocabulary_.find(whole);
      if (!a || !b || !id) merge.fail_type("two tokens whose union is in the vocabulary");
      merges_[key(*a, *b)] = {rank++, *id};
    });
  }

  static void add(ModelScratch& scratch, uint32_t id, uint32_t length) {
    const auto count = static_cast<int32_t>(scratch.symbols.size());
    if (count > 0) scratch.symbols.back().after = count;
    scratch.symbols.push_back({id, count - 1, -1, length});
  }

  // Adds a symbol for each character, and for unknown ones the bytes or the unknown token.
  void add_symbols(std::string_view word, bool bytes, ModelScratch& scratch) const {
    uint32_t unknown = 0;  // the length of the unknown token that is not added yet
    const auto add_unknown = [&] {
      if (unknown > 0) add(scratch, *unknown_, unknown);
      unknown = 0;
    };
    std::string& symbol = scratch.text;
    for (size_t at = 0; at < word.size();) {
      const auto length = static_cast<uint32_t>(bytes ? 1 : char_length(word[at]));
      symbol = at == 0 ? "" : prefix_;
      if (bytes) {
        append_utf8(symbol, char_of_byte(static_cast<unsigned char>(word[at])));
      } else {
        symbol += word.substr(at, length);
      }
      at += length;
      if (at == word.size()) symbol += suffix_;
      if (const auto id = vocabulary_.find(symbol)) {
        add_unknown();
        add(scratch, *id, length);
      } else if (add_bytes(symbol, scratch)) {
        continue;
      } else if (has_unknown_) {
        if (!unknown_) {
          fail(ErrorCode::kValue, "an unknown character, and the vocabulary has no token '",
               unknown_name_, "'");
        }
        if (!fuse_unknown_) add_unknown();
        unknown += length;
      }
    }
    add_unknown();
  }

  bool add_bytes(const std::string& symbol, ModelScratch& scratch) const {
    if (byte_tokens_.empty()) return false;
    for (const char c : symbol) {
      if (!byte_tokens_[static_cast<unsigned char>(c)]) return false;
    }
    for (const char c : symbol) add(scratch, *byte_tokens_[static_cast<unsigned char>(c)], 1);
    return true;
  }

  void merge(ModelScratch& scratch) const {
    if (scratch.symbols.size() > 32) {
      merge_long(scratch);
    } else {
      merge_short(scratch);
    }
  }

  // Finds the merge of the lowest rank by comparing all of them.
  void merge_short(ModelScratch& scratch) const {
    auto& symbols = scratch.symbols;
    constexpr uint32_t kNone = ~0U;
    uint32_t ranks[32], ids[32];  // of the merges with the next symbol
    const auto look_up = [&](size_t i) {
      const Target* found =
          i + 1 < symbols.size() ? merges_.find(key(symbols[i].id, symbols[i + 1].id)) : nullptr;
      ranks[i] = found == nullptr ? kNone : found->rank;
      ids[i] = found == nullptr ? 0 : found->id;
    };
    for (size_t i = 0; i < symbols.size(); ++i) look_up(i);
    while (true) {
      size_t best = 0;
      for (size_t i = 1; i < symbols.size(); ++i) {
        if (ranks[i] < ranks[best]) best = i;
      }
      if (symbols.empty() || ranks[best] == kNone) return;
      symbols[best].id = ids[best];
      symbols[best].length += symbols[best + 1].length;
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
      std::copy(ranks + best + 2, ranks + symbols.size() + 1, ranks + best + 1);
      std::copy(ids + best + 2, ids + symbols.size() + 1, ids + best + 1);
      look_up(best);
      if (best > 0) look_up(best - 1);
    }
  }

  // Keeps the merges in a heap.
  void merge_long(ModelScratch& scratch) const {
    auto& symbols = scratch.symbols;
    auto& heap = scratch.merges;
    heap.clear();
    const auto later = [](const ModelScratch::Merge& a, const ModelScratch::Merge& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
    };
    const auto push = [&](int32_t left, int32_t right) {
      const Target* found = merges_.find(
          key(symbols[static_cast<size_t>(left)].id, symbols[static_cast<size_t>(right)].id));
      if (found == nullptr) return false;
      heap.push_back({found->rank, static_cast<uint32_t>(left), found->id});
      return true;
    };
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      push(static_cast<int32_t>(i), static_cast<int32_t>(i + 1));
    }
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      const ModelScratch::Merge top = heap.back();
      heap.pop_back();
      ModelScratch::Symbol& left = symbols[top.place];
      if (left.length == 0 || left.after < 0) continue;
      ModelScratch::Symbol& right = symbols[static_cast<size_t>(left.after)];
      // The pair may have changed since it was found.
      const Target* found = merges_.find(key(left.id, right.id));
      if (found == nullptr || found->id != top.id) continue;
      left.id = top.id;
      left.length += right.length;
      right.length = 0;
      left.after = right.after;
      const auto place = static_cast<int32_t>(top.place);
      if (left.after >= 0) symbols[static_cast<size_t>(left.after)].before = place;
      if (left.before >= 0 && push(left.before, place)) {
        std::push_heap(heap.begin(), heap.end(), later);
      }
      if (left.after >= 0 && push(place, left.after)) {
        std::push_heap(heap.begin(), heap.end(), later);
      }
    }
  }

  std::string prefix_, suffix_;
  std::string unknown_name_;
  bool has_unknown_ = false;
  std::optional<uint32_t> unknown_;
  bool fuse_unknown_, ignore_merges_;
  std::vector<std::optional<uint32_t>> byte_tokens_;
  std::vector<std::optional<uint32_t>> raw_bytes_;  // the tokens of single bytes
  bool simple_bytes_ = false;                       // whether each byte is a symbol
  KeyMap<Target> merges_;
};

}  // namespace

std::unique_ptr<const Model> make_bpe(const Json& json) { return std::make_unique<Bpe>(json); }

}  // namespace mytorch::text
