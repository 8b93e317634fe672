#include "mytorch/nn/data/text_lines.h"

#include <cstring>
#include <utility>

#include "core/types/errors.h"
#include "nn/common/host_tensor.h"
#include "nn/common/whole_file.h"
#include "nn/data/gather.h"

namespace mytorch::nn::data {

TextLines::TextLines(const std::string& path, Encode encode)
    : text_(read_whole_file(path)), begins_{0}, encode_(std::move(encode)) {
  for (size_t end; (end = text_.find('\n', begins_.back())) != std::string::npos;) {
    begins_.push_back(end + 1);
  }
  if (begins_.back() != text_.size()) begins_.push_back(text_.size());
}

int64_t TextLines::size() const { return static_cast<int64_t>(begins_.size()) - 1; }

std::string_view TextLines::line(int64_t index) const {
  check_index("TextLines", index, size());
  const size_t begin = begins_[static_cast<size_t>(index)];
  std::string_view line(text_.data() + begin, begins_[static_cast<size_t>(index) + 1] - begin);
  for (const char end : {'\n', '\r'}) {
    if (!line.empty() && line.back() == end) line.remove_suffix(1);
  }
  return line;
}

Example TextLines::get(int64_t index) const {
  const std::string_view text = line(index);
  if (encode_ != nullptr) return {encode_(text)};
  Tensor bytes = fresh_host_tensor({static_cast<int64_t>(text.size())}, kUInt8);
  if (!text.empty()) std::memcpy(fresh_data(bytes), text.data(), text.size());
  return {bytes};
}

}  // namespace mytorch::nn::data
