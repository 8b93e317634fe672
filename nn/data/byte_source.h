// A file read from front to back, decompressed where it is gzipped.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mytorch::nn::data {

// Whether a file is gzipped is seen from its first bytes, not from its name: files named ".gz" that
// a download has unpacked are common. Every failure is Error(kIo) that names the file.
class ByteSource {
 public:
  explicit ByteSource(const std::string& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Fills `to`; gives fewer than `bytes` only at the end, which it has checked then (checksum and
  // length of gzip).
  size_t read(void* to, size_t bytes);
  // No more bytes than these can come out of the file.
  uint64_t limit() const { return limit_; }
  [[noreturn]] void fail_file(const std::string& reason) const;

 private:
  void refill();
  size_t read_gzip(uint8_t* to, size_t bytes);
  void inflate_some();

  std::string path_;
  int fd_ = -1;
  uint64_t limit_ = 0;
  bool gzip_ = false;
  bool file_ended_ = false;
  // What was read of the file and not yet used.
  std::vector<uint8_t> chunk_;
  size_t chunk_begin_ = 0;
  size_t chunk_end_ = 0;
  z_stream inflater_{};
  bool member_ended_ = false;  // of gzip's members, which may follow one another
  int members_ = 0;            // that ended
};

}  // namespace mytorch::nn::data
