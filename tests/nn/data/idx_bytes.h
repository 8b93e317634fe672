// Small files in MNIST's format, made by the tests themselves.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

namespace mytorch::testing {

inline std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

inline std::string idx_header(const std::vector<uint32_t>& sizes) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (uint32_t size : sizes) bytes += big_endian(size);
  return bytes;
}

// n images; pixel p of image i is (i * 31 + p) % 256.
inline std::string idx_images(uint32_t n) {
  std::string bytes = idx_header({n, 28, 28});
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t p = 0; p < 28 * 28; ++p) bytes += static_cast<char>((i * 31 + p) % 256);
  }
  return bytes;
}

// n labels; that of image i is i % 10.
inline std::string idx_labels(uint32_t n) {
  std::string bytes = idx_header({n});
  for (uint32_t i = 0; i < n; ++i) bytes += static_cast<char>(i % 10);
  return bytes;
}

inline std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace mytorch::testing
