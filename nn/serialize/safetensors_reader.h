// The bytes of a safetensors file or stream.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "mytorch/device.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/tensor.h"
#include "nn/serialize/safetensors_header.h"

namespace mytorch::nn {

// The constructors check the header and throw Error(kIo). Safe to read from several threads.
class SafetensorsReader {
 public:
  using Entry = SafetensorsFile::Entry;

  explicit SafetensorsReader(const std::string& path);
  explicit SafetensorsReader(std::istream& stream);  // reads it to its end
  ~SafetensorsReader() { close(); }
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  const Entry* find(const std::string& name) const;  // null if there is no such tensor
  Tensor load(const Entry& entry, Device device) const;
  // Reads `count` elements of a tensor from element `first` on, in row-major order, and nothing
  // else of the file. They are within the tensor.
  void read(const Entry& entry, int64_t first, int64_t count, void* to) const;

 private:
  [[noreturn]] void fail_file(const std::string& reason) const;
  void close();
  uint64_t size() const;
  void read_header();
  void read_at(void* to, uint64_t bytes, uint64_t offset) const;

  std::string path_;
  int fd_ = -1;        // -1: the bytes are in memory
  std::string bytes_;  // of a stream
  uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace mytorch::nn
