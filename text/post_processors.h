// The post-processors of tokenizer.json: they add special tokens and arrange pairs.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "mytorch/text/tokenizer.h"
#include "text/json.h"

namespace mytorch::text {

// A part of an encoding: the tokens of a text, or special tokens. Its lists have the same length.
struct Section {
  std::vector<int64_t> ids;
  std::vector<Range> offsets;
  std::vector<std::string> tokens;  // empty if nobody reads them
  std::string_view text;            // that the offsets belong to; empty for special tokens
  int64_t type = 0;
  bool special = false;
};

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  // The number of special tokens it adds.
  virtual size_t added(bool pair) const = 0;
  // Whether it reads Section::tokens.
  virtual bool reads_tokens() const { return false; }
  virtual void apply(std::vector<Section>& sections, bool add_special_tokens) const = 0;
};

// Throws Error(kUnsupported) for a type that is not supported.
std::unique_ptr<const PostProcessor> make_post_processor(const Json& json);

}  // namespace mytorch::text
