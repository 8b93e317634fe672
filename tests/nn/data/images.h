// Images whose bytes are made up.
#pragma once

#include <cstdint>
#include <vector>

#include "mytorch/nn/data/transforms.h"
#include "tests/nn/values.h"

namespace mytorch::testing {

// Image (1, 5, 7) of bytes.
inline Tensor gray_image() {
  std::vector<double> list;
  for (int i = 0; i < 35; ++i) list.push_back((i * 37 + i * i * 11) % 256);
  return filled({1, 5, 7}, list, kUInt8);
}

// Image (3, height, width) of bytes.
inline Tensor color_image(int64_t height, int64_t width) {
  std::vector<double> list;
  for (int64_t i = 0; i < 3 * height * width; ++i) {
    list.push_back(static_cast<double>((i * 53 + i * i * 7) % 256));
  }
  return filled({3, height, width}, list, kUInt8);
}

inline Tensor as_float(const Tensor& image) {
  return nn::data::transforms::ConvertImageDtype()(image);
}

}  // namespace mytorch::testing
