#include "nn/models/weight_files.h"

#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "core/types/errors.h"
#include "nn/models/config_fields.h"
#include "nn/serialize/atomic_file.h"
#include "nn/serialize/safetensors_header.h"

namespace mytorch::nn::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhat = "load_pretrained";
constexpr const char* kFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool has_file(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

WeightFiles::WeightFiles(const std::string& path) : path_(path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (absl::EndsWith(path, ".json")) {
      add_index(path);
    } else {
      add_file(path);
    }
  } else if (has_file(fs::path(path) / kFile)) {
    add_file(path + "/" + kFile);
  } else if (has_file(fs::path(path) / kIndex)) {
    add_index(path + "/" + kIndex);
  } else {
    const bool pickle = has_file(fs::path(path) / "pytorch_model.bin");
    fail(ErrorCode::kIo, "[", kWhat, "] folder ", path, " has neither ", kFile, " nor ", kIndex,
         pickle ? ". Its pytorch_model.bin is a program of Python's pickle: convert it with "
                  "save_pretrained of transformers"
                : "");
  }
}

void WeightFiles::add_file(const std::string& path) {
  files_.emplace_back(path);
  for (const auto& entry : files_.back().entries()) {
    tensors_[entry.name] = {files_.size() - 1, &entry};
  }
}

void WeightFiles::add_index(const std::string& path) {
  ConfigFields index = ConfigFields::read(kWhat, path);
  std::map<std::string, std::string> places;
  index("weight_map", places);
  if (places.empty()) {
    fail(ErrorCode::kValue, "[", kWhat, "] file ", path, " has no weight_map: it is not an index");
  }
  std::map<std::string, size_t> opened;
  const fs::path folder = fs::path(path).parent_path();
  for (const auto& [name, file] : places) {
    if (file.empty() || file == ".." || file.find('/') != std::string::npos) {
      fail(ErrorCode::kValue, "[", kWhat, "] file ", path, ": the file '", shown(file),
           "' of tensor '", shown(name), "' is not in its folder");
    }
    const auto [found, first] = opened.emplace(file, files_.size());
    if (first) files_.emplace_back((folder / file).string());
    const SafetensorsFile& shard = files_[found->second];
    const SafetensorsFile::Entry* place = nullptr;
    for (const auto& entry : shard.entries()) {
      if (entry.name == name) place = &entry;
    }
    if (place == nullptr) {
      fail(ErrorCode::kIo, "[", kWhat, "] file ", (folder / file).string(), " lacks tensor '",
           shown(name), "', which ", path, " expects in it: the files are of different models");
    }
    tensors_[name] = {found->second, place};
  }
}

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

const SafetensorsFile::Entry* WeightFiles::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.entry;
}

Tensor WeightFiles::load(const std::string& name) const {
  return files_[tensors_.at(name).file].load(name);
}

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
    ConfigFields index = ConfigFields::write(), sums = ConfigFields::write();
    sums("total_size", total);
    index.write_inside("metadata", sums);
    index("weight_map", places);
    const std::string text = index.json();
    AtomicFile file("save_pretrained", folder + "/" + kIndex);
    file.write(text.data(), text.size());
    file.commit();
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
