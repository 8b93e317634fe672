#include "mytorch/text/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <iterator>
#include <mutex>
#include <thread>

#include "absl/strings/str_join.h"
#include "text/added_tokens.h"
#include "text/decoders.h"
#include "text/errors.h"
#include "text/json.h"
#include "text/models.h"
#include "text/normalizers.h"
#include "text/post_processors.h"
#include "text/pre_tokenizers.h"
#include "text/word_cache.h"

namespace mytorch::text {

// The buffers of one thread.
struct Workspace {
  AlignedText normalized;
  Words words;
  std::vector<AddedTokens::Part> parts, normalized_parts;
  std::vector<Token> tokens;
  ModelScratch scratch;
  WordCache cache;
};

namespace {

constexpr size_t kLongestPadding = 1 << 24;

std::optional<std::string> read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) return std::nullopt;
  std::string bytes;
  char buffer[1 << 16];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), file.get())) {
    bytes.append(buffer, n);
  }
  if (std::ferror(file.get()) != 0) return std::nullopt;
  return bytes;
}

Truncation truncation_of(const Json& json) {
  Truncation truncation;
  truncation.max_length = json.size("max_length");
  truncation.strategy = static_cast<Truncation::Strategy>(
      json.choice("strategy", {"LongestFirst", "OnlyFirst", "OnlySecond"}));
  if (json.has("direction") && json.choice("direction", {"Left", "Right"}) == 0) {
    truncation.direction = Side::kLeft;
  }
  return truncation;
}

Padding padding_of(const Json& json) {
  Padding padding;
  const Json strategy = json.at("strategy");
  if (strategy.is_string()) {
    json.choice("strategy", {"BatchLongest"});
  } else {
    padding.length = strategy.size("Fixed");
  }
  if (json.has("pad_to_multiple_of")) padding.multiple_of = json.size("pad_to_multiple_of");
  if (json.choice("direction", {"Left", "Right"}) == 0) padding.direction = Side::kLeft;
  padding.id = json.integer("pad_id");
  padding.type_id = json.integer("pad_type_id");
  padding.token = json.string("pad_token");
  return padding;
}

template <class T>
void pad_list(std::vector<T>& list, size_t count, const T& value, Side side) {
  list.insert(side == Side::kLeft ? list.begin() : list.end(), count, value);
}

void pad(Encoding& encoding, const Padding& padding, size_t length, bool tokens) {
  if (encoding.size() >= length) return;
  const size_t count = length - encoding.size();
  pad_list(encoding.ids, count, padding.id, padding.direction);
  pad_list(encoding.type_ids, count, padding.type_id, padding.direction);
  pad_list(encoding.offsets, count, {}, padding.direction);
  pad_list(encoding.attention_mask, count, int64_t{0}, padding.direction);
  pad_list(encoding.special_tokens_mask, count, int64_t{1}, padding.direction);
  if (tokens) pad_list(encoding.tokens, count, padding.token, padding.direction);
}

void pad_all(std::span<Encoding> encodings, const Padding& padding, bool tokens) {
  size_t length = padding.length.value_or(0);
  for (const Encoding& encoding : encodings) {
    if (!padding.length) length = std::max(length, encoding.size());
  }
  const size_t multiple = padding.multiple_of.value_or(0);
  if (multiple > kLongestPadding || length > kLongestPadding) {
    fail(ErrorCode::kValue, "padding to ", std::max(length, multiple), " tokens; the limit is ",
         kLongestPadding);
  }
  if (multiple > 0) length = (length + multiple - 1) / multiple * multiple;
  for (Encoding& encoding : encodings) pad(encoding, padding, length, tokens);
}

template <class T>
void keep(std::vector<T>& list, size_t count, Side removed_side) {
  if (list.size() <= count) return;
  if (removed_side == Side::kLeft) {
    list.erase(list.begin(), list.end() - static_cast<ptrdiff_t>(count));
  } else {
    list.resize(count);
  }
}

void keep(Section& section, size_t count, Side removed_side) {
  keep(section.ids, count, removed_side);
  keep(section.offsets, count, removed_side);
  keep(section.tokens, count, removed_side);
}

// Truncates one or two sections to `limit` tokens in all.
void truncate(std::vector<Section>& sections, size_t limit, const Truncation& truncation) {
  using Strategy = Truncation::Strategy;
  const bool pair = sections.size() == 2;
  size_t first = sections[0].ids.size();
  size_t second = pair ? sections[1].ids.size() : 0;
  if (first + second <= limit) return;
  if (truncation.strategy == Strategy::kLongestFirst) {
    if (limit == 0) {
      first = second = 0;
    } else if (!pair) {
      first = limit;
    } else {
      const bool swapped = first > second;
      size_t shorter = std::min(first, second);
      size_t longer = shorter > limit ? shorter : std::max(shorter, limit - shorter);
      if (shorter + longer > limit) {
        shorter = limit / 2;
        longer = shorter + limit % 2;
      }
      first = swapped ? longer : shorter;
      second = swapped ? shorter : longer;
    }
  } else if (limit == 0) {
    first = second = 0;
  } else {
    const bool second_only = truncation.strategy == Strategy::kOnlySecond;
    if (second_only && !pair) {
      fail(ErrorCode::kValue, "the truncation strategy kOnlySecond needs a pair of texts");
    }
    size_t& target = second_only ? second : first;
    const size_t removed = first + second - limit;
    if (target <= removed) {
      fail(ErrorCode::kValue, "truncation to ", truncation.max_length, " tokens: the ",
           second_only ? "second" : "first", " text has only ", target, " of ", first + second,
           ": truncate both (kLongestFirst) or allow more tokens");
    }
    target -= removed;
  }
  keep(sections[0], first, truncation.direction);
  if (pair) keep(sections[1], second, truncation.direction);
}

}  // namespace

struct Tokenizer::State {
  std::unique_ptr<const Normalizer> normalizer;
  std::unique_ptr<const PreTokenizer> pre_tokenizer;
  std::unique_ptr<const Model> model;
  std::unique_ptr<const PostProcessor> post_processor;
  std::unique_ptr<const Decoder> decoder;
  AddedTokens added;

  // Lends a workspace to a thread.
  class Lease {
   public:
    explicit Lease(const State& state) : state_(state) {
      const std::lock_guard lock(state.mutex);
      if (!state.workspaces.empty()) {
        workspace_ = std::move(state.workspaces.back());
        state.workspaces.pop_back();
      }
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      if (workspace_ == nullptr) return;
      const std::lock_guard lock(state_.mutex);
      state_.workspaces.push_back(std::move(workspace_));
    }
    Workspace& get() {
      if (workspace_ == nullptr) workspace_ = std::make_unique<Workspace>();
      return *workspace_;
    }

   private:
    const State& state_;
    std::unique_ptr<Workspace> workspace_;
  };
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<Workspace>> workspaces;

  // Appends tokens of valid UTF-8 until there are `limit`.
  void encode(std::string_view text, size_t limit, Workspace& workspace, Section& section,
              bool tokens) const {
    workspace.parts.clear();
    if (!added.divide(text, false, workspace.parts)) {
      encode_raw(text, 0, limit, workspace, section, tokens);
      return;
    }
    for (const AddedTokens::Part& part : workspace.parts) {
      if (section.ids.size() >= limit) return;
      const std::string_view here = text.substr(part.piece.begin, part.piece.size());
      if (part.id) {
        append(section, *part.id, {part.piece.begin, part.piece.end}, tokens, here);
      } else {
        encode_raw(here, part.piece.begin, limit, workspace, section, tokens);
      }
    }
  }

 private:
  static void append(Section& section, uint32_t id, Range range, bool tokens,
                     std::string_view token) {
    section.ids.push_back(id);
    section.offsets.push_back(range);
    if (tokens) section.tokens.emplace_back(token);
  }

  // Encodes a part of the text between added tokens.
  void encode_raw(std::string_view text, uint32_t at, size_t limit, Workspace& workspace,
                  Section& section, bool tokens) const {
    AlignedText& normalized = workspace.normalized;
    normalized.assign(text, at);
    if (normalizer != nullptr) normalizer->apply(normalized);
    if (normalized.empty()) return;
    workspace.normalized_parts.clear();
    if (!added.divide(normalized.str(), true, workspace.normalized_parts)) {
      std::swap(workspace.words.text, normalized);
      encode_words(limit, workspace, section, tokens);
      return;
    }
    for (const AddedTokens::Part& part : workspace.normalized_parts) {
      if (section.ids.size() >= limit) return;
      if (part.id) {
        const Piece range = normalized.original(part.piece);
        append(section, *part.id, {range.begin, range.end}, tokens, normalized.str(part.piece));
      } else {
        workspace.words.text.assign(normalized, part.piece);
        encode_words(limit, workspace, section, tokens);
      }
    }
  }

  void encode_words(size_t limit, Workspace& workspace, Section& section, bool tokens) const {
    Words& words = workspace.words;
    words.pieces.assign(1, {0, static_cast<uint32_t>(words.text.size())});
    words.bytes = false;
    if (pre_tokenizer != nullptr) pre_tokenizer->apply(words);
    if (words.bytes && !model->reads_bytes()) words.write_bytes();
    WordCache& cache = workspace.cache;
    for (const Piece piece : words.pieces) {
      if (section.ids.size() >= limit) return;
      const std::string_view word = words.text.str(piece);
      if (word.size() > WordCache::kLongestWord) {
        tokenize(word, workspace);
        append_word(section, piece, workspace.tokens, words.text, tokens);
        continue;
      }
      const WordCache::Place place = cache.find(word);
      if (place.found) {
        append_word(section, piece, cache.tokens(place), words.text, tokens);
      } else {
        tokenize(word, workspace);
        append_word(section, piece, workspace.tokens, words.text, tokens);
        cache.add(place, word, workspace.tokens);
      }
    }
  }

  void tokenize(std::string_view word, Workspace& workspace) const {
    workspace.tokens.clear();
    model->tokenize(word, workspace.words.bytes, workspace.tokens, workspace.scratch);
  }

  void append_word(Section& section, Piece piece, std::span<const Token> word,
                   const AlignedText& text, bool tokens) const {
    for (const Token& token : word) {
      const Piece part = {piece.begin + token.begin, piece.begin + token.end};
      section.ids.push_back(token.id);
      if (part.begin < part.end) {
        const Piece range = text.original(part);
        section.offsets.push_back({range.begin, range.end});
      } else {
        const uint32_t end = text.align(part.begin - (part.begin == piece.end ? 1 : 0)).end;
        section.offsets.push_back({end, end});
      }
      if (!tokens) continue;
      if (token.id == model->shown_as_text()) {
        section.tokens.emplace_back(text.str(part));
      } else {
        const std::string* shown = model->vocabulary().token(token.id);
        section.tokens.emplace_back(shown == nullptr ? "" : *shown);
      }
    }
  }
};

Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Tokenizer Tokenizer::from_file(const std::string& path) {
  const std::optional<std::string> json = read_file(path);
  if (!json) fail(ErrorCode::kIo, "file ", path, " cannot be read: give a tokenizer.json");
  try {
    return from_json(*json);
  } catch (const Error& error) {
    std::string_view message = error.what();
    if (message.starts_with("[Tokenizer] ")) message.remove_prefix(12);
    fail(error.code(), "file ", path, ": ", message);
  }
}

Tokenizer Tokenizer::from_json(std::string_view text) {
  const auto document = Json::parse(text);
  const Json json(*document);
  if (!json.is_object()) json.fail_type("an object");
  if (json.string("version", "1.0") != "1.0") {
    fail(ErrorCode::kUnsupported, "the file has a version other than 1.0");
  }
  auto state = std::make_shared<State>();
  if (json.has("normalizer")) state->normalizer = make_normalizer(json.at("normalizer"));
  if (json.has("pre_tokenizer")) {
    state->pre_tokenizer = make_pre_tokenizer(json.at("pre_tokenizer"));
  }
  if (!json.at("model").is_object()) json.at("model").fail_type("an object");
  state->model = make_model(json.at("model"));
  if (json.has("post_processor")) {
    state->post_processor = make_post_processor(json.at("post_processor"));
  }
  if (json.has("decoder")) state->decoder = make_decoder(json.at("decoder"));
  state->added.read(json.at("added_tokens"), state->model->vocabulary(), state->normalizer.get());
  Tokenizer tokenizer(std::move(state));
  if (json.has("truncation")) tokenizer.enable_truncation(truncation_of(json.at("truncation")));
  if (json.has("padding")) tokenizer.enable_padding(padding_of(json.at("padding")));
  return tokenizer;
}

void Tokenizer::enable_truncation(const Truncation& truncation) { truncation_ = truncation; }
void Tokenizer::enable_padding(const Padding& padding) { padding_ = padding; }

Encoding Tokenizer::encode_unpadded(std::string_view text, const std::string_view* pair,
                                    const EncodeOptions& options) const {
  const PostProcessor* post = state_->post_processor.get();
  const bool tokens = options.tokens || (post != nullptr && post->reads_tokens());
  size_t limit = SIZE_MAX, all_tokens = SIZE_MAX;
  if (truncation_) {
    const size_t added =
        post != nullptr && options.add_special_tokens ? post->added(pair != nullptr) : 0;
    if (truncation_->max_length < added) {
      fail(ErrorCode::kValue, "truncation to ", truncation_->max_length, " tokens, but ", added,
           " special tokens are added: allow more tokens or set add_special_tokens to false");
    }
    limit = truncation_->max_length - added;
    // More tokens than these change nothing.
    if (truncation_->direction == Side::kRight &&
        truncation_->strategy == Truncation::Strategy::kLongestFirst) {
      all_tokens = limit;
    }
  }
  State::Lease lease(*state_);
  std::string repaired[2];
  std::vector<uint32_t> starts[2];
  std::vector<Section> sections;
  for (size_t i = 0; i < (pair == nullptr ? 1 : 2); ++i) {
    std::string_view source = i == 0 ? text : *pair;
    if (source.size() >= size_t{1} << 31) {
      fail(ErrorCode::kValue, "a text of ", source.size(),
           " bytes: divide it into parts below 2 GiB");
    }
    if (!is_valid_utf8(source)) {
      repaired[i] = repair_utf8(source, &starts[i]);
      source = repaired[i];
    }
    Section section;
    section.text = source;
    section.type = static_cast<int64_t>(i);
    state_->encode(source, all_tokens, lease.get(), section, tokens);
    sections.push_back(std::move(section));
  }
  if (truncation_) truncate(sections, limit, *truncation_);
  if (post != nullptr) post->apply(sections, options.add_special_tokens);

  Encoding encoding;
  size_t size = 0;
  for (const Section& section : sections) size += section.ids.size();
  encoding.type_ids.reserve(size);
  encoding.special_tokens_mask.reserve(size);
  encoding.attention_mask.assign(size, 1);
  for (Section& section : sections) {
    for (const size_t i : {0, 1}) {
      if (starts[i].empty() || section.text.data() != repaired[i].data()) continue;
      for (Range& range : section.offsets) {
        range = {starts[i][range.begin], starts[i][range.end]};
      }
    }
    encoding.type_ids.insert(encoding.type_ids.end(), section.ids.size(), section.type);
    encoding.special_tokens_mask.insert(encoding.special_tokens_mask.end(), section.ids.size(),
                                        section.special ? 1 : 0);
    if (encoding.ids.empty() && sections.size() == 1) {
      encoding.ids = std::move(section.ids);
      encoding.offsets = std::move(section.offsets);
      if (options.tokens) encoding.tokens = std::move(section.tokens);
      continue;
    }
    encoding.ids.reserve(size);
    encoding.offsets.reserve(size);
    encoding.ids.insert(encoding.ids.end(), section.ids.begin(), section.ids.end());
    encoding.offsets.insert(encoding.offsets.end(), section.offsets.begin(), section.offsets.end());
    if (!options.tokens) continue;
    encoding.tokens.reserve(size);
    std::move(section.tokens.begin(), section.tokens.end(), std::back_inserter(encoding.tokens));
  }
  return encoding;
}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  Encoding encoding = encode_unpadded(text, nullptr, options);
  if (padding_) pad_all({&encoding, 1}, *padding_, options.tokens);
  return encoding;
}

Encoding Tokenizer::encode(std::string_view text, std::string_view pair,
                           const EncodeOptions& options) const {
  Encoding encoding = encode_unpadded(text, &pair, options);
  if (padding_) pad_all({&encoding, 1}, *padding_, options.tokens);
  return encoding;
}

std::vector<Encoding> Tokenizer::encode_all(
    size_t count, const EncodeOptions& options,
    const std::function<Encoding(size_t, const EncodeOptions&)>& encode_one) const {
  std::vector<Encoding> encodings(count);
  size_t threads = options.threads;
  if (threads == 0) threads = std::max<size_t>(1, std::thread::hardware_concurrency());
  threads = std::min(threads, count);
  const size_t chunk = std::max<size_t>(1, count / (8 * std::max<size_t>(1, threads)));
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (size_t begin; (begin = next.fetch_add(chunk)) < count;) {
        const size_t end = std::min(begin + chunk, count);
        for (size_t i = begin; i < end; ++i) encodings[i] = encode_one(i, options);
      }
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (failure == nullptr) failure = std::current_exception();
    }
  };
  std::vector<std::thread> workers;
  for (size_t i = 1; i < threads; ++i) {
    try {
      workers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // fewer threads do the work
    }
  }
  work();
  for (std::thread& worker : workers) worker.join();
  if (failure != nullptr) std::rethrow_exception(failure);
  if (padding_) pad_all(encodings, *padding_, options.tokens);
  return encodings;
}

std::vector<Encoding> Tokenizer::encode_batch(std::span<const std::string> texts,
                                              const EncodeOptions& options) const {
  return encode_all(texts.size(), options, [&](size_t i, const EncodeOptions& o) {
    return encode_unpadded(texts[i], nullptr, o);
  });
}

std::vector<Encoding> Tokenizer::encode_batch(
    std::span<const std::pair<std::string, std::string>> pairs,
    const EncodeOptions& options) const {
  return encode_all(pairs.size(), options, [&](size_t i, const EncodeOptions& o) {
    const std::string_view second = pairs[i].second;
    return encode_unpadded(pairs[i].first, &second, o);
  });
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int64_t id : ids) {
    if (id < 0 || id > INT32_MAX) continue;
    const std::string* token = state_->added.token(static_cast<uint32_t>(id), /*decoded=*/true);
    if (token == nullptr) token = state_->model->vocabulary().token(static_cast<uint32_t>(id));
    if (token == nullptr) continue;
    if (skip_special_tokens && state_->added.is_special(*token)) continue;
    tokens.push_back(*token);
  }
  if (state_->decoder == nullptr) return absl::StrJoin(tokens, " ");
  state_->decoder->apply(tokens);
  return absl::StrJoin(tokens, "");
}

std::vector<std::string> Tokenizer::decode_batch(std::span<const std::vector<int64_t>> batch,
                                                 bool skip_special_tokens) const {
  std::vector<std::string> texts;
  texts.reserve(batch.size());
  for (const auto& ids : batch) texts.push_back(decode(ids, skip_special_tokens));
  return texts;
}

std::optional<int64_t> Tokenizer::token_to_id(std::string_view token) const {
  auto id = state_->added.find(token);
  if (!id) id = state_->model->vocabulary().find(token);
  if (!id) return std::nullopt;
  return *id;
}

std::optional<std::string> Tokenizer::id_to_token(int64_t id) const {
  if (id < 0 || id > INT32_MAX) return std::nullopt;
  const std::string* token = state_->added.token(static_cast<uint32_t>(id), /*decoded=*/false);
  if (token == nullptr) token = state_->model->vocabulary().token(static_cast<uint32_t>(id));
  if (token == nullptr) return std::nullopt;
  return *token;
}

size_t Tokenizer::vocab_size(bool with_added_tokens) const {
  return state_->model->vocabulary().size() + (with_added_tokens ? state_->added.extra() : 0);
}

// ---- DecodeStream ----

DecodeStream::DecodeStream(Tokenizer tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

std::string DecodeStream::decode() const { return tokenizer_.decode(ids_, skip_special_tokens_); }

namespace {

// Returns what follows the common prefix of both texts.
std::string rest_of(const std::string& text, const std::string& prefix) {
  size_t common = 0;
  while (common < prefix.size() && common < text.size() && text[common] == prefix[common]) ++common;
  while (common > 0 && common < text.size() && is_continuation(text[common])) --common;
  return text.substr(common);
}

}  // namespace

std::string DecodeStream::step(int64_t id) {
  ids_.push_back(id);
  const std::string text = decode();
  // A character whose last bytes are missing is decoded as U+FFFD.
  if (text.size() <= prefix_.size() || text.ends_with("\xef\xbf\xbd")) return "";
  std::string rest = rest_of(text, prefix_);
  // The tokens whose text is finished are the context of the next ones; older ones are forgotten.
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(finished_));
  finished_ = ids_.size();
  prefix_ = decode();
  return rest;
}

std::string DecodeStream::finish() {
  std::string rest = rest_of(decode(), prefix_);
  ids_.clear();
  finished_ = 0;
  prefix_.clear();
  return rest;
}

}  // namespace mytorch::text
