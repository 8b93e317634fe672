// A file read sequentially and decompressed if gzipped.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mytorch::nn {

// Recognizes gzip by its first bytes rather than the file name, because downloads are often
// unpacked without renaming. Every failure throws an Error(kIo) that names the file.
class ByteSource {
 public:
  explicit ByteSource(const std::string& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Fills `to` and returns the number of bytes read, which is less than `bytes` only at the end of
  // the file. Verifies gzip's checksum and length at the end.
  size_t read(void* to, size_t bytes);
  // Returns an upper bound on the number of bytes in the file after decompression.
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
  // Bytes read from the file and not yet consumed.
  std::vector<uint8_t> chunk_;
  size_t chunk_begin_ = 0;
  size_t chunk_end_ = 0;
  z_stream inflater_{};
  bool member_ended_ = false;  // of a gzip member; a file may have several
  int members_ = 0;            // number of complete members
};

}  // namespace mytorch::nn
