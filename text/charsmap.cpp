#include "text/charsmap.h"

#include <cstring>

#include "absl/strings/escaping.h"
#include "text/errors.h"
#include "text/unicode.h"

namespace mytorch::text {

Charsmap::Charsmap(std::string_view base64) {
  std::string bytes;
  uint32_t size = 0;
  const bool decoded = absl::Base64Unescape({base64.data(), base64.size()}, &bytes);
  if (decoded && bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
  if (!decoded || bytes.size() < 4 || size % 4 != 0 || size > bytes.size() - 4) {
    fail(ErrorCode::kIo, "'precompiled_charsmap' is damaged");
  }
  units_.resize(size / 4);
  if (size != 0) std::memcpy(units_.data(), &bytes[4], size);
  replacements_ = bytes.substr(4 + size);
  if (!is_valid_utf8(replacements_)) {
    fail(ErrorCode::kIo, "'precompiled_charsmap' is damaged: its replacements are not UTF-8");
  }
  keeps_ascii_ = true;
  for (char c = 1; c > 0 && c < 127; ++c) {
    if (find(std::string_view(&c, 1))) keeps_ascii_ = false;
  }
  if (find("\x7f")) keeps_ascii_ = false;
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  if (units_.empty()) return std::nullopt;
  const auto offset = [](uint32_t unit) { return size_t{unit >> 10} << ((unit & (1U << 9)) >> 6); };
  size_t node = offset(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    node ^= byte;
    if (byte == 0 || node >= units_.size()) return std::nullopt;
    const uint32_t unit = units_[node];
    if ((unit & (1U << 31 | 0xff)) != byte) return std::nullopt;
    node ^= offset(unit);
    if ((unit >> 8 & 1) != 0) {
      if (node >= units_.size()) return std::nullopt;
      const size_t begin = units_[node] & (~0U >> 1);
      if (begin > replacements_.size()) return std::nullopt;
      // A damaged rule may begin inside of a character.
      if (begin < replacements_.size() && is_continuation(replacements_[begin]))
        return std::nullopt;
      const size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
      return std::string_view(replacements_).substr(begin, end - begin);
    }
  }
  return std::nullopt;
}

}  // namespace mytorch::text
