// A normalized text whose bytes know their place in the original text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode.h"

namespace mytorch::text {

// A range of bytes. Texts are shorter than 2 GiB.
struct Piece {
  uint32_t begin;
  uint32_t end;
  size_t size() const { return end - begin; }
};

class AlignedText {
 public:
  // A part of the original text that begins at `at`. `text` is valid UTF-8.
  void assign(std::string_view text, uint32_t at);
  // Keeps only a piece of `other`.
  void assign(const AlignedText& other, Piece piece);

  const std::string& str() const { return text_; }
  std::string_view str(Piece piece) const {
    return std::string_view(text_).substr(piece.begin, piece.size());
  }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  // For replacing characters by others of the same length.
  char* data() { return text_.data(); }

  // Returns the range of the original text that a byte belongs to.
  Piece align(size_t at) const;
  // Returns the range of the original text for a piece that is not empty.
  Piece original(Piece piece) const { return {align(piece.begin).begin, align(piece.end - 1).end}; }

 private:
  friend class Rewriter;
  std::string text_;
  bool moved_ = false;  // whether aligns_ is used; otherwise byte i is byte i + shift_
  uint32_t shift_ = 0;
  std::vector<Piece> aligns_;  // of each byte
};

// Writes a changed text: copies pieces of the old one and inserts characters, from the left to the
// right. finish() replaces the old text.
class Rewriter {
 public:
  explicit Rewriter(AlignedText& text) : in_(text) { reserve(text.size()); }

  // The number of bytes written.
  uint32_t size() const { return static_cast<uint32_t>(out_.size()); }
  const AlignedText& in() const { return in_; }
  void copy(Piece piece);
  void put(char32_t c, Piece align);
  void put(std::string_view text, Piece align);
  // Writes the characters of `changes` in place of a piece. `skipped` characters at the front of
  // the piece are removed. An inserted character belongs to the character before it.
  void transform(Piece piece, std::span<const Change> changes, size_t skipped = 0);
  void finish();

 private:
  void reserve(size_t bytes);

  AlignedText& in_;
  std::string out_;
  std::vector<Piece> aligns_;
};

}  // namespace mytorch::text
