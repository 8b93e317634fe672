#include "mytorch/nn/models/pretrained.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/safetensors_files.h"
#include "mytorch/ops/t.h"
#include "nn/models/weight_files.h"
#include "nn/serialize/atomic_file.h"
#include "nn/serialize/safetensors_header.h"
#include "nn/split.h"

namespace mytorch::nn::models {
namespace {

bool ends_with_any(const std::string& name, const std::vector<std::string>& ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [&](const std::string& end) { return absl::EndsWith(name, end); });
}

// The names that a file may have for a parameter.
std::vector<std::string> spellings(const std::string& name, const std::string& prefix) {
  std::vector<std::string> names{name, prefix + name};
  if (absl::StartsWith(name, prefix)) names.push_back(name.substr(prefix.size()));
  // Files that were converted from TensorFlow.
  for (size_t i = 0, count = names.size(); i < count; ++i) {
    for (const auto& [own, old] : {std::pair{"LayerNorm.weight", "LayerNorm.gamma"},
                                   std::pair{"LayerNorm.bias", "LayerNorm.beta"}}) {
      if (absl::EndsWith(names[i], own)) {
        names.push_back(std::string(absl::StripSuffix(names[i], own)) + old);
      }
    }
  }
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kShown; ++i) {
    absl::StrAppend(&text, i == 0 ? "'" : ", '", shown(names[i]), "'");
  }
  if (names.size() > kShown) absl::StrAppend(&text, " and ", names.size() - kShown, " more");
  return text;
}

// Returns the parameters, and the buffers that are part of the state.
NamedList<Tensor> saved_tensors(const Module& module) {
  NamedList<Tensor> all = module.named_parameters();
  std::set<const void*> known;
  for (const auto& [name, tensor] : all) known.insert(tensor.raw_data());
  std::set<std::string> buffers;
  for (const auto& [name, tensor] : module.named_buffers()) buffers.insert(name);
  for (const auto& [name, tensor] : module.state_dict()) {
    if (buffers.count(name) != 0 && known.insert(tensor.raw_data()).second) {
      all.push_back({name, tensor});
    }
  }
  return all;
}

}  // namespace

LoadReport PretrainedModel::load_pretrained(const std::string& path, bool strict) {
  const SafetensorsFiles files(path, "load_pretrained");
  for (const std::string& name : files.names()) files.entry(name);  // they are all there
  const WeightLayout layout = weight_layout();
  const NamedList<Tensor> parameters = saved_tensors(*this);
  // All names of each parameter: those of tied ones are several.
  std::map<const void*, std::vector<std::string>> names;
  for (const auto& [name, tensor] : state_dict()) names[tensor.raw_data()].push_back(name);

  struct Copy {
    Tensor to;
    std::string from;
    bool transposed;
  };
  std::vector<Copy> copies;
  LoadReport report;
  std::set<std::string> used;
  std::string misfits;
  bool whole = false;  // whether this module has a head, or the file has no prefix
  for (const auto& [name, tensor] : parameters) {
    whole = whole || absl::StartsWith(name, layout.prefix);
    const SafetensorsFile::Entry* entry = nullptr;
    for (const std::string& own : names[tensor.raw_data()]) {
      for (const std::string& spelling : spellings(own, layout.prefix)) {
        if (!files.contains(spelling)) continue;
        used.insert(spelling);
        if (entry == nullptr) entry = &files.entry(spelling);
      }
    }
    if (entry == nullptr) {
      report.missing.push_back(name);
      continue;
    }
    const bool transposed = ends_with_any(name, layout.transposed);
    std::vector<int64_t> shape = entry->shape;
    if (transposed && shape.size() == 2) std::swap(shape[0], shape[1]);
    if (!is_floating_point(entry->dtype)) {
      fail(ErrorCode::kValue, "[load_pretrained] ", path, ": tensor '", shown(entry->name),
           "' is of type ", dtype_name(entry->dtype),
           ": quantized models are not supported, give one in floating point");
    }
    if (!(IntList(shape) == tensor.sizes())) {
      std::vector<int64_t> own = tensor.sizes().vec();
      if (transposed) std::swap(own[0], own[1]);
      absl::StrAppend(&misfits, misfits.empty() ? "" : "; ", "'", shown(entry->name),
                      "' has shape ", shape_str(entry->shape), ", the model's is ", shape_str(own));
      continue;
    }
    copies.push_back({tensor, entry->name, transposed});
  }
  bool prefixed = false;
  for (const std::string& name : used) prefixed = prefixed || absl::StartsWith(name, layout.prefix);
  for (const std::string& name : files.names()) {
    if (used.count(name) != 0 || ends_with_any(name, layout.ignored)) continue;
    // A body leaves out the heads of the file.
    if (!whole && prefixed && !absl::StartsWith(name, layout.prefix)) continue;
    report.unexpected.push_back(name);
  }
  if (strict && !(report.missing.empty() && report.unexpected.empty())) {
    fail(ErrorCode::kValue, "[load_pretrained] ", path, " has other tensors than ", this->name(),
         report.missing.empty() ? "" : absl::StrCat(": missing ", listed(report.missing)),
         report.unexpected.empty() ? ""
                                   : absl::StrCat(report.missing.empty() ? ": " : "; ",
                                                  "unexpected ", listed(report.unexpected)),
         ". Make the model with the file's own configuration, or set strict = false to load the "
         "names in common");
  }
  if (!misfits.empty()) {
    fail(ErrorCode::kShape, "[load_pretrained] ", path, ": ", misfits,
         ". Make the model with the file's own configuration");
  }
  NoGradGuard no_grad;
  for (const Copy& copy : copies) {
    const Tensor from = files.load(copy.from);
    copy.to.copy_(copy.transposed ? t(from) : from);
  }
  return report;
}

void PretrainedModel::widen_buffers() {
  const WeightLayout layout = weight_layout();
  for (auto& [name, tensor] : named_buffers()) {
    if (ends_with_any(name, layout.float32)) tensor.set_data(tensor.to(kFloat32));
  }
}

void PretrainedModel::save_pretrained(const std::string& folder, int64_t max_shard_bytes) const {
  if (max_shard_bytes < 1) {
    fail(ErrorCode::kValue, "[save_pretrained] max_shard_bytes is ", max_shard_bytes,
         ": give at least 1");
  }
  for (const Module* part : const_cast<PretrainedModel*>(this)->modules()) {
    if (split_of(*part) == nullptr) continue;
    fail(ErrorCode::kValue,
         "[save_pretrained] the model is split over ranks, and this rank has a part of it: call "
         "save_parts(), or load whole_state_dict() into a model that is not split");
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    fail(ErrorCode::kIo, "[save_pretrained] folder ", folder, " cannot be made: ", error.message());
  }
  const WeightLayout layout = weight_layout();
  NoGradGuard no_grad;
  TensorMap tensors;
  for (const auto& [name, tensor] : saved_tensors(*this)) {
    tensors[name] = ends_with_any(name, layout.transposed) ? t(tensor.detach()) : tensor.detach();
  }
  write_weight_files(folder, tensors, max_shard_bytes);
  const std::string json = config_json();
  AtomicFile file("save_pretrained", folder + "/config.json");
  file.write(json.data(), json.size());
  file.commit();
}

}  // namespace mytorch::nn::models
