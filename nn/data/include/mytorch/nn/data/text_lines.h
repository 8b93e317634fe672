// The lines of a text file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mytorch/nn/data/dataset.h"
#include "mytorch/std_function.h"

namespace mytorch::nn::data {

// Example i is line i, encoded as a tensor. Lines differ in length, so a DataLoader needs a collate
// function such as pad_examples():
//
//   DataLoader loader(TextLines("corpus.txt"), {.batch_size = 32, .collate = pad_examples()});
class TextLines final : public Dataset {
 public:
  // Encodes a line as a tensor; called on the workers of a DataLoader.
  using Encode = std::function<Tensor(std::string_view line)>;

  // Reads the file, plain or gzipped, into memory. Lines end with "\n" or "\r\n", the last one
  // perhaps with neither. `encode` is empty for the line's bytes, uint8 of shape (length). Throws
  // Error(kIo).
  explicit TextLines(const std::string& path, Encode encode = nullptr);
  int64_t size() const override;
  Example get(int64_t index) const override;
  // The line without its end; valid as long as this object.
  std::string_view line(int64_t index) const;

 private:
  std::string text_;
  std::vector<size_t> begins_;  // of the lines, and the end of the text
  Encode encode_;
};

}  // namespace mytorch::nn::data
