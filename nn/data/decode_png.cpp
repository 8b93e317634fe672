#include "core/types/errors.h"
#include "nn/data/image_file.h"

#ifdef MYTORCH_PNG

#include <png.h>

#include <cstring>
#include <memory>
#include <vector>

namespace mytorch::nn::data {

Tensor decode_png(const ImageFile& file) {
  png_image image;
  std::memset(&image, 0, sizeof(image));
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> guard(&image, png_image_free);
  const auto check = [&](int good) {
    if (good == 0) file.fail_file(absl::StrCat("is no valid PNG file: ", image.message));
  };
  check(png_image_begin_read_from_memory(&image, file.data(), file.bytes.size()));
  // Deflate expands 2 bits to 258 bytes, each of up to 8 pixels.
  file.check_size(image.width, image.height, uint64_t{1032} * 8);
  const bool alpha = (image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  image.format = alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  check(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr));
  return to_planes(pixels.data(), image.height, image.width, alpha ? 4 : 3);
}

}  // namespace mytorch::nn::data

#else

namespace mytorch::nn::data {

Tensor decode_png(const ImageFile& file) {
  fail(ErrorCode::kUnsupported, "[read_image] file ", file.path,
       " is a PNG file, but mytorch was built without libpng: install it (Debian: libpng-dev) and "
       "build again, or convert the file to PPM");
}

}  // namespace mytorch::nn::data

#endif
