// The normalizers of tokenizer.json.
#pragma once

#include <memory>

#include "text/aligned_text.h"
#include "text/json.h"

namespace mytorch::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(AlignedText& text) const = 0;
};

// Throws Error(kUnsupported) for a type that is not supported.
std::unique_ptr<const Normalizer> make_normalizer(const Json& json);

// Replaces each byte by the character that stands for it in byte-level vocabularies.
void map_bytes(AlignedText& text);
// Returns the character that stands for a byte.
char32_t char_of_byte(unsigned char byte);
// Returns the byte for which a character stands, or -1.
int byte_of_char(char32_t c);

}  // namespace mytorch::text
