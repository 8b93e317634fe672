#include "text/post_processors.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "text/errors.h"
#include "text/unicode.h"

namespace mytorch::text {
namespace post_processors {
namespace {

struct Special {
  std::vector<int64_t> ids;
  std::vector<std::string> tokens;
};

Section section_of(const Special& special, int64_t type) {
  Section section;
  section.ids = special.ids;
  section.tokens = special.tokens;
  section.offsets.resize(special.ids.size());
  section.type = type;
  section.special = true;
  return section;
}

// Reads ["[SEP]", 102].
Special special_of(const Json& json) {
  Special special;
  size_t size = 0;
  json.each([&](const Json& part) {
    if (size == 0) special.tokens.push_back(part.string());
    if (size == 1) special.ids.push_back(part.integer());
    ++size;
  });
  if (size != 2) json.fail_type("a token and its id");
  return special;
}

bool is_space(char32_t c) { return c == 0x120 || is_whitespace(c); }  // 0x120 stands for ' '

// Moves the offsets of byte-level tokens past the spaces at their ends.
void trim(Section& section, bool has_prefix) {
  const std::string_view text = section.text;
  for (size_t i = 0; i < section.tokens.size(); ++i) {
    const std::string& token = section.tokens[i];
    size_t leading = 0, trailing = 0;
    for (size_t at = 0; at < token.size() && is_space(next_char(token, at));) ++leading;
    for (size_t end = token.size(); end > 0 && is_space(last_char(token, end));) {
      end -= encoded_length(last_char(token, end));
      ++trailing;
    }
    Range& range = section.offsets[i];
    if (leading == 1 && has_prefix && (i == 0 || range.begin == 0)) leading = 0;
    for (; leading > 0 && range.begin < range.end; --leading) {
      range.begin += char_length(text[range.begin]);
    }
    range.begin = std::min(range.begin, range.end);
    size_t end = range.end;
    for (; trailing > 0 && end > 0; --trailing) end -= encoded_length(last_char(text, end));
    if (trailing == 0) range.end = std::max(end, range.begin);
  }
}

class ByteLevel final : public PostProcessor {
 public:
  explicit ByteLevel(const Json& json)
      : prefix_(json.boolean("add_prefix_space", true)),
        trims_(json.boolean("trim_offsets", true)) {}
  size_t added(bool) const override { return 0; }
  bool reads_tokens() const override { return trims_; }
  void apply(std::vector<Section>& sections, bool) const override {
    if (!trims_) return;
    for (Section& section : sections) {
      if (!section.special) trim(section, prefix_);
    }
  }

 private:
  bool prefix_, trims_;
};

class Bert final : public PostProcessor {
 public:
  explicit Bert(const Json& json)
      : cls_(special_of(json.at("cls"))), sep_(special_of(json.at("sep"))) {}
  size_t added(bool pair) const override { return pair ? 3 : 2; }
  void apply(std::vector<Section>& sections, bool add_special_tokens) const override {
    if (!add_special_tokens) return;
    std::vector<Section> result;
    for (size_t i = 0; i < sections.size(); ++i) {
      if (i == 0) result.push_back(section_of(cls_, 0));
      result.push_back(std::move(sections[i]));
      result.push_back(section_of(sep_, i == 0 ? 0 : 1));
    }
    sections.swap(result);
  }

 private:
  Special cls_, sep_;
};

class Roberta final : public PostProcessor {
 public:
  explicit Roberta(const Json& json)
      : cls_(special_of(json.at("cls"))),
        sep_(special_of(json.at("sep"))),
        prefix_(json.boolean("add_prefix_space", true)),
        trims_(json.boolean("trim_offsets", true)) {}
  size_t added(bool pair) const override { return pair ? 4 : 2; }
  bool reads_tokens() const override { return trims_; }
  void apply(std::vector<Section>& sections, bool add_special_tokens) const override {
    for (Section& section : sections) {
      if (trims_ && !section.special) trim(section, prefix_);
      section.type = 0;
    }
    if (!add_special_tokens) return;
    std::vector<Section> result;
    for (size_t i = 0; i < sections.size(); ++i) {
      result.push_back(section_of(i == 0 ? cls_ : sep_, 0));
      result.push_back(std::move(sections[i]));
      result.push_back(section_of(sep_, 0));
    }
    sections.swap(result);
  }

 private:
  Special cls_, sep_;
  bool prefix_, trims_;
};

class Template final : public PostProcessor {
 public:
  explicit Template(const Json& json) {
    absl::flat_hash_map<std::string, Special> specials;
    json.at("special_tokens").each_field([&](const std::string& name, const Json& each) {
      Special& special = specials[name];
      each.at("ids").each([&](const Json& id) { special.ids.push_back(id.integer()); });
      each.at("tokens").each([&](const Json& token) { special.tokens.push_back(token.string()); });
      if (special.ids.size() != special.tokens.size()) {
        each.at("tokens").fail_type("as many tokens as ids");
      }
    });
    for (const bool pair : {false, true}) {
      json.at(pair ? "pair" : "single").each([&](const Json& each) {
        Part part;
        if (each.has("Sequence")) {
          const Json sequence = each.at("Sequence");
          part.text = static_cast<int>(sequence.choice("id", {"A", "B"}));
          part.type = sequence.integer("type_id");
          if (part.text == 1 && !pair) sequence.at("id").fail_type("A in the template of one text");
        } else {
          const Json special = each.at("SpecialToken");
          const auto found = specials.find(special.string("id"));
          if (found == specials.end()) special.at("id").fail_type("in 'special_tokens'");
          part.special = found->second;
          part.type = special.integer("type_id");
        }
        added_[pair ? 1 : 0] += part.special.ids.size();
        parts_[pair ? 1 : 0].push_back(std::move(part));
      });
    }
  }
  size_t added(bool pair) const override { return added_[pair ? 1 : 0]; }
  void apply(std::vector<Section>& sections, bool add_special_tokens) const override {
    if (sections.size() > 2) {
      fail(ErrorCode::kUnsupported,
           "a TemplateProcessing after another post-processor that adds tokens");
    }
    std::vector<Section> result;
    for (const Part& part : parts_[sections.size() - 1]) {
      if (part.text >= 0) {
        result.push_back(sections[static_cast<size_t>(part.text)]);
        result.back().type = part.type;
      } else if (add_special_tokens) {
        result.push_back(section_of(part.special, part.type));
      }
    }
    sections.swap(result);
  }

 private:
  struct Part {
    int text = -1;  // 0 or 1; -1: special tokens
    Special special;
    int64_t type = 0;
  };
  std::vector<Part> parts_[2];  // of one text and of two
  size_t added_[2] = {};
};

class Sequence final : public PostProcessor {
 public:
  explicit Sequence(const Json& json) {
    json.each("processors", [&](const Json& each) { all_.push_back(make_post_processor(each)); });
  }
  size_t added(bool pair) const override {
    size_t sum = 0;
    for (const auto& each : all_) sum += each->added(pair);
    return sum;
  }
  bool reads_tokens() const override {
    return std::any_of(all_.begin(), all_.end(), [](const auto& p) { return p->reads_tokens(); });
  }
  void apply(std::vector<Section>& sections, bool add_special_tokens) const override {
    for (const auto& each : all_) {
      if (!sections.empty()) each->apply(sections, add_special_tokens);
    }
  }

 private:
  std::vector<std::unique_ptr<const PostProcessor>> all_;
};

}  // namespace
}  // namespace post_processors

std::unique_ptr<const PostProcessor> make_post_processor(const Json& json) {
  using namespace post_processors;
  switch (json.choice("type", {"TemplateProcessing", "BertProcessing", "RobertaProcessing",
                               "ByteLevel", "Sequence"})) {
    case 0:
      return std::make_unique<Template>(json);
    case 1:
      return std::make_unique<Bert>(json);
    case 2:
      return std::make_unique<Roberta>(json);
    case 3:
      return std::make_unique<ByteLevel>(json);
    default:
      return std::make_unique<Sequence>(json);
  }
}

}  // namespace mytorch::text
