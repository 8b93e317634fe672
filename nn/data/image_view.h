// Images as arrays of planes, for transforms.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "mytorch/tensor.h"

namespace mytorch::nn::data {

// A contiguous uint8 or float32 image (channels, height, width) in host memory.
struct ImageView {
  Tensor tensor;
  int64_t channels;
  int64_t height;
  int64_t width;
  int64_t plane() const { return height * width; }
};

// Throws an Error prefixed with `what` if the tensor is no image of the transforms.
ImageView view_image(const char* what, const Tensor& image);

// Returns an uninitialized image of the same type and number of channels.
Tensor image_like(const ImageView& image, int64_t height, int64_t width);

// Calls function(T{}) for the image's element type.
template <class F>
void with_element(const ImageView& image, F function) {
  if (image.tensor.dtype() == kUInt8) {
    function(uint8_t{});
  } else {
    function(float{});
  }
}

// The largest value of an image of this type.
template <class T>
inline constexpr float kWhite = std::is_same_v<T, uint8_t> ? 255.0f : 1.0f;

// Converts a computed value: to the nearest byte, or as it is.
template <class T>
T nearest(float value) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return static_cast<uint8_t>(std::min(std::max(value + 0.5f, 0.0f), 255.0f));
  } else {
    return value;
  }
}

// A rectangle of pixels.
struct Region {
  int64_t top;
  int64_t left;
  int64_t height;
  int64_t width;
};

// Resizes a region of the image, which must lie within it.
Tensor resize_region(const ImageView& image, Region region, int64_t height, int64_t width);

// Copies a region, which may exceed the image; `fill` is the value outside.
Tensor crop_region(const ImageView& image, Region region, double fill);

// Returns p. Throws Error(kValue) unless it is a probability.
double checked_probability(const char* what, double p);

// Throws Error(kValue) unless `low` to `high` is a finite interval above `least`.
void check_interval(const char* what, const char* name, double low, double high, double least);

}  // namespace mytorch::nn::data
