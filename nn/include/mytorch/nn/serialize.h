// Tensors in files, in the safetensors format (https://github.com/huggingface/safetensors).
//
// A file is a 64-bit little-endian length, a JSON header of that length, and the tensors' bytes in
// row-major order. Nothing in a file is executed, and nothing in it is believed: a file that is not
// exactly what its header says is refused with Error(kIo) that names file, tensor and reason.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/tensor.h"

namespace mytorch::nn {

using TensorMap = std::map<std::string, Tensor>;
using Metadata = std::map<std::string, std::string>;

// Writes the tensors, of any device and strides, and the metadata. The file appears whole or not at
// all: it is written beside `path` under another name, synchronized to the disk and renamed, so an
// older file at `path` survives every failure. Equal tensors and metadata give equal bytes.
// Throws Error(kValue) for undefined tensors, for names and metadata that are not UTF-8, for a
// tensor named "__metadata__"; Error(kIo) when writing fails.
void save_safetensors(const std::string& path, const TensorMap& tensors,
                      const Metadata& metadata = {});

// Reads all tensors of a file to a device, each in memory of its own.
TensorMap load_safetensors(const std::string& path, Device device = kCPU);

// An open file whose tensors are read one by one, for models larger than memory or to look at. The
// header is checked when it is opened. Safe to read from several threads.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    ScalarType dtype;
    std::vector<int64_t> shape;
    int64_t begin;  // of its bytes, from the end of the header
    int64_t end;
  };

  explicit SafetensorsFile(const std::string& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::vector<Entry>& entries() const;  // by name
  const Metadata& metadata() const;
  bool contains(const std::string& name) const;
  // Throws Error(kValue) where there is no such tensor.
  Tensor load(const std::string& name, Device device = kCPU) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mytorch::nn
