#include "core/types/errors.h"
#include "nn/data/image_file.h"

#ifdef MYTORCH_JPEG

#include <csetjmp>
#include <cstdio>
#include <vector>

// After <cstdio>, on which these rely.
#include <jerror.h>
#include <jpeglib.h>

namespace mytorch::nn::data {
namespace {

// libjpeg reports errors by a function that must not return. longjmp skips no destructor: the
// functions that call setjmp have no objects with destructors.
struct JpegError {
  jpeg_error_mgr manager;  // first, so that libjpeg's pointer to it is one to this
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* error = reinterpret_cast<JpegError*>(info->err);
  error->manager.format_message(info, error->message);
  std::longjmp(error->jump, 1);
}

// Tolerates warnings except for missing data, which libjpeg would fill with gray.
void warn(j_common_ptr info, int level) {
  if (level < 0 &&
      (info->err->msg_code == JWRN_JPEG_EOF || info->err->msg_code == JWRN_HIT_MARKER)) {
    leave(info);
  }
}

class JpegDecoder {
 public:
  JpegDecoder() {
    info_.err = jpeg_std_error(&error_.manager);
    error_.manager.error_exit = leave;
    error_.manager.emit_message = warn;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  bool read_header(const uint8_t* bytes, size_t size) {
    if (setjmp(error_.jump) != 0) return false;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, bytes, size);
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = JCS_RGB;
    return true;
  }
  bool read_pixels(uint8_t* to) {
    if (setjmp(error_.jump) != 0) return false;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = to + size_t{3} * info_.output_scanline * info_.output_width;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }
  const jpeg_decompress_struct& info() const { return info_; }
  const char* message() const { return error_.message; }

 private:
  jpeg_decompress_struct info_{};
  JpegError error_{};
};

}  // namespace

Tensor decode_jpeg(const ImageFile& file) {
  JpegDecoder decoder;
  if (!decoder.read_header(file.data(), file.bytes.size())) {
    file.fail_file(absl::StrCat("has a damaged JPEG header: ", decoder.message()));
  }
  const uint64_t width = decoder.info().image_width;
  const uint64_t height = decoder.info().image_height;
  // A block of 64 pixels takes at least one bit.
  file.check_size(width, height, uint64_t{8} * 64);
  std::vector<uint8_t> pixels(width * height * 3);
  if (!decoder.read_pixels(pixels.data())) {
    file.fail_file(absl::StrCat("is damaged in row ", decoder.info().output_scanline, " of ",
                                height, ": ", decoder.message()));
  }
  return to_planes(pixels.data(), static_cast<int64_t>(height), static_cast<int64_t>(width), 3);
}

}  // namespace mytorch::nn::data

#else

namespace mytorch::nn::data {

Tensor decode_jpeg(const ImageFile& file) {
  fail(ErrorCode::kUnsupported, "[read_image] file ", file.path,
       " is a JPEG file, but mytorch was built without libjpeg: install it (Debian: "
       "libjpeg62-turbo-dev) and build again, or convert the file to PPM");
}

}  // namespace mytorch::nn::data

#endif
