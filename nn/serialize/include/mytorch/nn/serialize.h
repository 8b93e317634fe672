// Saves and loads tensors in the safetensors format (https://github.com/huggingface/safetensors).
//
// A file consists of a 64-bit little-endian length, a JSON header of that length, and the tensors'
// bytes in row-major order. Loading executes nothing and trusts nothing in the file: a file that
// does not match its header exactly is rejected with an Error(kIo) that names the file, the tensor
// and the reason.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/owned.h"
#include "mytorch/tensor.h"

namespace mytorch::nn {

using TensorMap = std::map<std::string, Tensor>;
using Metadata = std::map<std::string, std::string>;

// Writes tensors, of any device and strides, and metadata. The file is replaced atomically: the
// data is written to a temporary file beside `path`, synchronized to disk and renamed, so an
// existing file survives every failure. Equal tensors and metadata produce equal bytes. Throws
// Error(kValue) for undefined tensors, for names and metadata that are not UTF-8, and for a tensor
// named "__metadata__"; throws Error(kIo) if writing fails.
void save_safetensors(const std::string& path, const TensorMap& tensors,
                      const Metadata& metadata = {});
// Writes to a stream, under the same conditions.
void save_safetensors(std::ostream& stream, const TensorMap& tensors,
                      const Metadata& metadata = {});

// Reads all tensors to a device, each into its own memory: of one file; of the files of an index,
// whose name ends with ".json"; or of a folder's model.safetensors or, without that, its
// model.safetensors.index.json. Throws Error(kIo).
TensorMap load_safetensors(const std::string& path, Device device = kCPU);
// Reads a stream to its end.
TensorMap load_safetensors(std::istream& stream, Device device = kCPU);

// An open file whose tensors can be read one by one, for models larger than memory and for
// inspection. The constructor checks the header and throws Error(kIo). Safe to read from several
// threads.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    ScalarType dtype;
    std::vector<int64_t> shape;
    int64_t begin;  // of the tensor's bytes, from the end of the header
    int64_t end;
  };

  explicit SafetensorsFile(const std::string& path);
  explicit SafetensorsFile(std::istream& stream);  // reads it to its end
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::vector<Entry>& entries() const;  // sorted by name
  const Metadata& metadata() const;
  bool contains(const std::string& name) const;
  // Throws Error(kValue) if there is no such tensor, Error(kIo) if reading fails.
  Tensor load(const std::string& name, Device device = kCPU) const;

 private:
  struct State;
  Owned<State> state_;
};

}  // namespace mytorch::nn
