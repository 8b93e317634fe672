#include "nn/data/image_file.h"

#include <cstring>
#include <new>

#include "core/types/errors.h"
#include "mytorch/nn/data/image_folder.h"
#include "nn/common/host_tensor.h"
#include "nn/common/whole_file.h"

namespace mytorch::nn::data {
namespace {

constexpr uint64_t kMostPixels = uint64_t{1} << 28;
constexpr uint64_t kMostFileBytes = uint64_t{1} << 30;

// Reads the header of a PNM file: numbers separated by white space and comments.
class PnmHeader {
 public:
  explicit PnmHeader(const ImageFile& file) : file_(file) {}

  uint64_t number(const char* what) {
    skip_space();
    uint64_t value = 0;
    const size_t begin = at_;
    for (; at_ < file_.bytes.size() && digit(); ++at_) {
      value = value * 10 + static_cast<uint64_t>(file_.bytes[at_] - '0');
      if (value > kMostPixels) file_.fail_file(absl::StrCat("has a too large ", what));
    }
    if (at_ == begin || value == 0) {
      file_.fail_file(absl::StrCat("has no ", what, " at byte ", begin));
    }
    return value;
  }
  // Returns the position of the pixels, after one white-space character.
  size_t pixels() {
    if (at_ >= file_.bytes.size() || !space()) {
      file_.fail_file(absl::StrCat("has no white space after its header, at byte ", at_));
    }
    return at_ + 1;
  }

 private:
  bool digit() const { return file_.bytes[at_] >= '0' && file_.bytes[at_] <= '9'; }
  bool space() const {
    return std::strchr(" \t\r\n\v\f", file_.bytes[at_]) != nullptr && file_.bytes[at_] != 0;
  }
  void skip_space() {
    for (; at_ < file_.bytes.size(); ++at_) {
      if (file_.bytes[at_] == '#') {
        at_ = std::min(file_.bytes.find('\n', at_), file_.bytes.size() - 1);
      } else if (!space()) {
        return;
      }
    }
  }

  const ImageFile& file_;
  size_t at_ = 2;
};

}  // namespace

void ImageFile::fail_file(std::string_view reason) const {
  fail(ErrorCode::kIo, "[read_image] file ", path, " ", reason);
}

void ImageFile::check_size(uint64_t width, uint64_t height, uint64_t pixels_per_byte) const {
  uint64_t pixels;
  if (width == 0 || height == 0) fail_file("has no pixels");
  if (__builtin_mul_overflow(width, height, &pixels) || pixels > kMostPixels) {
    fail_file(absl::StrCat("promises ", height, " x ", width, " pixels, more than the ",
                           kMostPixels, " that are accepted: make it smaller"));
  }
  if (pixels / pixels_per_byte > bytes.size()) {
    fail_file(absl::StrCat("is cut short: it promises ", height, " x ", width,
                           " pixels, more than its ", bytes.size(), " bytes can hold"));
  }
}

Tensor to_planes(const uint8_t* pixels, int64_t height, int64_t width, int channels) {
  Tensor image = fresh_host_tensor({3, height, width}, kUInt8);
  const int64_t n = height * width;
  uint8_t* red = fresh_data<uint8_t>(image);
  uint8_t* green = red + n;
  uint8_t* blue = green + n;
  const int64_t second = channels == 1 ? 0 : 1, third = channels == 1 ? 0 : 2;
  for (int64_t i = 0; i < n; ++i, pixels += channels) {
    red[i] = pixels[0];
    green[i] = pixels[second];
    blue[i] = pixels[third];
  }
  return image;
}

Tensor decode_pnm(const ImageFile& file) {
  PnmHeader header(file);
  const uint64_t width = header.number("width");
  const uint64_t height = header.number("height");
  const uint64_t most = header.number("maximum");
  if (most != 255) {
    file.fail_file(absl::StrCat("has the maximum value ", most, ": only 255 is supported"));
  }
  file.check_size(width, height, 1);
  const int channels = file.bytes[1] == '5' ? 1 : 3;
  const size_t begin = header.pixels();
  const uint64_t needed = width * height * static_cast<uint64_t>(channels);
  if (file.bytes.size() - begin < needed) {
    file.fail_file(absl::StrCat("is cut short: it ends after ", file.bytes.size() - begin,
                                " of the ", needed, " bytes of its pixels"));
  }
  return to_planes(file.data() + begin, static_cast<int64_t>(height), static_cast<int64_t>(width),
                   channels);
}

Tensor read_image(const std::string& path) try {
  const ImageFile file{path, read_whole_file(path, kMostFileBytes)};
  const std::string_view bytes = file.bytes;
  if (bytes.substr(0, 2) == "\xff\xd8") return decode_jpeg(file);
  if (bytes.substr(0, 4) == "\x89PNG") return decode_png(file);
  if (bytes.substr(0, 2) == "P5" || bytes.substr(0, 2) == "P6") return decode_pnm(file);
  fail(ErrorCode::kUnsupported, "[read_image] file ", path,
       " is neither JPEG, PNG nor binary PPM or PGM: convert it to one of these");
} catch (const std::bad_alloc&) {
  fail(ErrorCode::kOutOfMemory, "[read_image] out of memory for the pixels of ", path);
}

}  // namespace mytorch::nn::data
