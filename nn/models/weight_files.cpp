#include "nn/models/weight_files.h"

#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "mytorch/nn/safetensors_files.h"

namespace mytorch::nn::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

}  // namespace

void write_weight_files(const std::string& folder, const TensorMap& tensors,
                        int64_t max_shard_bytes) {
  std::vector<TensorMap> shards(1);
  int64_t total = 0, bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    const int64_t size = tensor.numel() * tensor.element_size();
    if (bytes > 0 && bytes + size > max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back()[name] = tensor;
    bytes += size;
    total += size;
  }
  const Metadata metadata{{"format", "pt"}};  // transformers requires it
  std::set<std::string> written;
  std::map<std::string, std::string> places;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = shards.size() == 1 ? kFile
                                                : absl::StrFormat("model-%05d-of-%05d.safetensors",
                                                                  i + 1, shards.size());
    save_safetensors(folder + "/" + file, shards[i], metadata);
    written.insert(file);
    for (const auto& [name, tensor] : shards[i]) places[name] = file;
  }
  if (shards.size() > 1) {
    save_safetensors_index(folder + "/" + kIndex, places, total);
    written.insert(kIndex);
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == kFile || name == kIndex ||
                      (absl::StartsWith(name, "model-") && absl::EndsWith(name, ".safetensors"));
    std::error_code ignored;
    if (ours && written.count(name) == 0) fs::remove(entry.path(), ignored);
  }
}

}  // namespace mytorch::nn::models
