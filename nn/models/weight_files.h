// Writing the safetensors files of a model.
#pragma once

#include <cstdint>
#include <string>

#include "mytorch/nn/serialize.h"

namespace mytorch::nn::models {

// Writes the tensors into a folder: model.safetensors, or, if they exceed `max_shard_bytes`,
// model-00001-of-00002.safetensors and so on, and model.safetensors.index.json. Removes the files
// of the same names that belong to an older model. Throws Error(kIo).
void write_weight_files(const std::string& folder, const TensorMap& tensors,
                        int64_t max_shard_bytes);

}  // namespace mytorch::nn::models
