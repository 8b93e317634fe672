// Images in folders, and reading image files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/nn/data/dataset.h"

namespace mytorch::nn::data {

// Reads a color image: uint8 (3, height, width), red, green, blue. Gray images have three equal
// channels; transparency is ignored. Recognizes the format by the file's first bytes: binary PPM
// and PGM of 8 bits; JPEG and PNG if mytorch was built with libjpeg and libpng. Throws Error(kIo),
// naming the file and the place, for damaged files, Error(kUnsupported) for other formats.
Tensor read_image(const std::string& path);

// Images of several classes, one folder per class, whose name is that of the class:
//
//   train/cat/1.jpg   train/cat/2.jpg   train/dog/7.png
//
// An example is the image, as by read_image, and the class number, a 0-dim int64. Classes and
// images are numbered in the order of their names. Images usually differ in size, so map the
// dataset by transforms that make the sizes equal.
class ImageFolder final : public Dataset {
 public:
  // Lists the files of each class, including its subfolders, that end with .jpg, .jpeg, .png, .ppm
  // or .pgm in any case. Throws Error(kIo) if there is no class or a class has no image.
  explicit ImageFolder(const std::string& directory);
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  Example get(int64_t index) const override;

  const std::vector<std::string>& classes() const { return classes_; }
  // The path and class of each image.
  const std::vector<std::pair<std::string, int64_t>>& files() const { return files_; }

 private:
  std::vector<std::string> classes_;
  std::vector<std::pair<std::string, int64_t>> files_;
};

}  // namespace mytorch::nn::data
