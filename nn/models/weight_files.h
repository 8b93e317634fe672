// The safetensors files of a model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mytorch/nn/serialize.h"

namespace mytorch::nn::models {

// The tensors of a file, of the files that an index lists, or of a model's folder. The constructor
// checks that each tensor of an index is in its file. Throws Error(kIo).
class WeightFiles {
 public:
  explicit WeightFiles(const std::string& path);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;
  // Returns null if there is no such tensor.
  const SafetensorsFile::Entry* find(const std::string& name) const;
  Tensor load(const std::string& name) const;  // `find` has found it

 private:
  struct Place {
    size_t file;
    const SafetensorsFile::Entry* entry;
  };
  void add_file(const std::string& path);
  void add_index(const std::string& path);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> tensors_;
};

// Writes the tensors into a folder: model.safetensors, or, if they exceed `max_shard_bytes`,
// model-00001-of-00002.safetensors and so on, and model.safetensors.index.json. Removes the files
// of the same names that belong to an older model. Throws Error(kIo).
void write_weight_files(const std::string& folder, const TensorMap& tensors,
                        int64_t max_shard_bytes);

}  // namespace mytorch::nn::models
