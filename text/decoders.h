// The decoders of tokenizer.json: they make a text of tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/json.h"

namespace mytorch::text {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Changes the tokens; the text is their concatenation.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// Throws Error(kUnsupported) for a type that is not supported.
std::unique_ptr<const Decoder> make_decoder(const Json& json);

}  // namespace mytorch::text
