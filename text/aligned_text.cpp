#include "text/aligned_text.h"

namespace mytorch::text {

void AlignedText::assign(std::string_view text, uint32_t at) {
  text_.assign(text);
  moved_ = false;
  shift_ = at;
}

void AlignedText::assign(const AlignedText& other, Piece piece) {
  text_.assign(other.str(piece));
  moved_ = other.moved_;
  shift_ = other.shift_ + piece.begin;
  if (moved_)
    aligns_.assign(&other.aligns_[piece.begin], &other.aligns_[piece.begin] + piece.size());
}

Piece AlignedText::align(size_t at) const {
  if (moved_) return aligns_[at];
  size_t begin = at;
  while (is_continuation(text_[begin])) --begin;
  size_t end = at + 1;
  while (end < text_.size() && is_continuation(text_[end])) ++end;
  return {static_cast<uint32_t>(begin) + shift_, static_cast<uint32_t>(end) + shift_};
}

void Rewriter::reserve(size_t bytes) {
  out_.reserve(bytes + bytes / 8);
  aligns_.reserve(bytes + bytes / 8);
}

void Rewriter::copy(Piece piece) {
  out_ += in_.str(piece);
  if (in_.moved_) {
    aligns_.insert(aligns_.end(), in_.aligns_.begin() + piece.begin,
                   in_.aligns_.begin() + piece.end);
    return;
  }
  for (uint32_t at = piece.begin; at < piece.end;) {
    const auto length = static_cast<uint32_t>(char_length(in_.text_[at]));
    const uint32_t begin = at + in_.shift_;
    aligns_.insert(aligns_.end(), length, {begin, begin + length});
    at += length;
  }
}

void Rewriter::put(char32_t c, Piece align) {
  append_utf8(out_, c);
  aligns_.resize(out_.size(), align);
}

void Rewriter::put(std::string_view text, Piece align) {
  out_ += text;
  aligns_.resize(out_.size(), align);
}

void Rewriter::transform(Piece piece, std::span<const Change> changes, size_t skipped) {
  const std::string& text = in_.str();
  size_t at = piece.begin;
  const auto skip = [&] {
    if (at < piece.end) at += char_length(text[at]);
  };
  for (; skipped > 0; --skipped) skip();
  for (const Change& change : changes) {
    if (change.change > 0) {
      Piece align = {};
      if (at > piece.begin) {
        align = in_.align(at - 1);
      } else if (at < text.size()) {
        const uint32_t begin = in_.align(at).begin;
        align = {begin, begin};
      }
      put(change.c, align);
      continue;
    }
    put(change.c, at < text.size() ? in_.align(at) : Piece{});
    for (int i = change.change; i <= 0; ++i) skip();
  }
}

void Rewriter::finish() {
  in_.text_.swap(out_);
  in_.aligns_.swap(aligns_);
  in_.moved_ = true;
}

}  // namespace mytorch::text
