// The tensors of several safetensors files, as Hugging Face's tools write large models:
// model-00001-of-00003.safetensors and so on, and model.safetensors.index.json, which says in which
// of them each tensor is (https://huggingface.co/docs/transformers/big_models).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mytorch/device.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/owned.h"
#include "mytorch/tensor.h"

namespace mytorch::nn {

// Reads one file; the files of an index, whose name ends with ".json"; or a folder's
// model.safetensors or, without that, its model.safetensors.index.json. A file of an index is
// opened when it is first needed. Safe to read from several threads.
class SafetensorsFiles {
 public:
  using Entry = SafetensorsFile::Entry;

  // Throws Error(kIo) for files that are missing or damaged, and Error(kValue) for an index that
  // has no weight_map, or that names files outside of its folder. `what` begins the messages.
  explicit SafetensorsFiles(const std::string& path, const char* what = "load_safetensors");
  SafetensorsFiles(SafetensorsFiles&&) noexcept;
  SafetensorsFiles& operator=(SafetensorsFiles&&) noexcept;
  ~SafetensorsFiles();

  const std::string& path() const;
  std::vector<std::string> names() const;  // sorted
  bool contains(const std::string& name) const;
  // Returns type and shape of a tensor. As load() and read(), throws Error(kValue) if there is no
  // such tensor, and Error(kIo) if its file cannot be read or does not have it.
  const Entry& entry(const std::string& name) const;
  Tensor load(const std::string& name, Device device = kCPU) const;
  // Returns the elements [first, first + count) of a tensor in row-major order, of shape (count).
  // Reads nothing else of the file. Throws Error(kValue) if the tensor does not have them.
  Tensor read(const std::string& name, int64_t first, int64_t count) const;

 private:
  struct State;
  Owned<State> state_;
};

// Writes the index of files that were written before, each name with its file. Replaces an earlier
// index atomically. `total_bytes` is the size of all tensors. Throws Error(kIo).
void save_safetensors_index(const std::string& path,
                            const std::map<std::string, std::string>& files, int64_t total_bytes);

}  // namespace mytorch::nn
