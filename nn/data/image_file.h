// Decoders of image files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mytorch/tensor.h"

namespace mytorch::nn::data {

// An image file in memory. The decoders return uint8 (3, height, width).
struct ImageFile {
  std::string path;
  std::string bytes;

  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(bytes.data()); }
  [[noreturn]] void fail_file(std::string_view reason) const;
  // Throws Error(kIo) if an image of this size cannot be in the file, of which a byte describes at
  // most `pixels_per_byte` pixels, or is larger than any that is accepted. Call it before the
  // pixels are allocated.
  void check_size(uint64_t width, uint64_t height, uint64_t pixels_per_byte) const;
};

Tensor decode_pnm(const ImageFile& file);
Tensor decode_jpeg(const ImageFile& file);  // throws Error(kUnsupported) without libjpeg
Tensor decode_png(const ImageFile& file);   // throws Error(kUnsupported) without libpng

// Converts rows of interleaved pixels of 1 (gray), 3 or 4 bytes, the fourth of which is ignored, to
// planes.
Tensor to_planes(const uint8_t* pixels, int64_t height, int64_t width, int channels);

}  // namespace mytorch::nn::data
