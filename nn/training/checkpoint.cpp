#include "mytorch/nn/training/checkpoint.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/str_format.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "nn/common/host_tensor.h"

namespace mytorch::nn {
namespace {

constexpr const char* kFormatKey = "mytorch.checkpoint";
constexpr const char* kFormat = "1";
constexpr const char* kStepKey = "mytorch.step";
constexpr const char* kChecksumKey = "mytorch.crc32";
constexpr const char* kUserPrefix = "user.";
constexpr const char* kEnding = ".safetensors";

[[noreturn]] void fail_checkpoint(ErrorCode code, const std::string& path,
                                  const std::string& reason) {
  fail(code, "[Checkpoint] file ", path, ": ", reason);
}

std::optional<int64_t> parse_step(std::string_view digits) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool good = error == std::errc() && end == digits.data() + digits.size() && step >= 0;
  return good ? std::optional(step) : std::nullopt;
}

// A checksum of names, types, shapes and bytes, all in host memory, and of the other metadata.
std::string checksum_of(const TensorMap& tensors, const Metadata& metadata) {
  uLong sum = crc32(0, nullptr, 0);
  const auto add = [&sum](const void* data, size_t bytes) {
    constexpr size_t kPiece = size_t{1} << 30;  // zlib counts in 32 bits
    const auto* next = static_cast<const Bytef*>(data);
    for (; bytes > 0;) {
      const size_t n = std::min(bytes, kPiece);
      sum = crc32(sum, next, static_cast<uInt>(n));
      next += n;
      bytes -= n;
    }
  };
  for (const auto& [name, tensor] : tensors) {
    const std::string head =
        absl::StrCat(name, ":", dtype_name(tensor.dtype()), shape_str(tensor.sizes()));
    add(head.data(), head.size());
    check_host_access(tensor, "checkpoint");
    add(tensor.raw_data(), static_cast<size_t>(tensor.numel() * tensor.element_size()));
  }
  for (const auto& [key, value] : metadata) {
    if (key == kChecksumKey) continue;
    const std::string entry = absl::StrCat(key.size(), ":", key, value.size(), ":", value);
    add(entry.data(), entry.size());
  }
  return absl::StrFormat("%08x", static_cast<uint32_t>(sum));
}

std::string number(int64_t step) { return absl::StrFormat("%010d", step); }

Tensor uint64_tensor(uint64_t value) {
  Tensor tensor = fresh_host_tensor({}, kInt64);
  *fresh_data<uint64_t>(tensor) = value;
  return tensor;
}

uint64_t generator_number(const TensorMap& state, const char* name) {
  const auto found = state.find(name);
  if (state.size() != 2 || found == state.end() || found->second.dtype() != kInt64 ||
      found->second.numel() != 1) {
    fail(ErrorCode::kValue, "[Checkpoint] the state is not that of a generator");
  }
  return static_cast<uint64_t>(found->second.item<int64_t>());
}

// Returns up to ten keys of `a` that `b` lacks.
template <class A, class B>
std::string keys_without(const A& a, const B& b) {
  std::string list;
  int count = 0;
  for (const auto& [key, value] : a) {
    if (b.count(key) != 0) continue;
    if (++count <= 10) absl::StrAppend(&list, list.empty() ? "" : ", ", key);
  }
  if (count > 10) absl::StrAppend(&list, " and ", count - 10, " more");
  return list;
}

std::string described(const Tensor& tensor) {
  return absl::StrCat(dtype_name(tensor.dtype()), " ", shape_str(tensor.sizes()));
}

// Throws Error(kValue) unless the keys, shapes and types of a module and of a file agree.
void check_same(const std::string& path, const std::string& part, const TensorMap& own,
                const TensorMap& saved) {
  const std::string missing = keys_without(own, saved);
  const std::string unexpected = keys_without(saved, own);
  std::string reasons;
  if (!missing.empty()) absl::StrAppend(&reasons, "; the file lacks ", missing);
  if (!unexpected.empty()) absl::StrAppend(&reasons, "; only the file has ", unexpected);
  for (const auto& [key, tensor] : own) {
    const auto found = saved.find(key);
    if (found == saved.end() || described(found->second) == described(tensor)) continue;
    absl::StrAppend(&reasons, "; ", key, " is ", described(found->second), " in the file, ",
                    described(tensor), " in '", part, "'");
  }
  if (reasons.empty()) return;
  fail_checkpoint(ErrorCode::kValue, path,
                  absl::StrCat("it is of another model than '", part, "'", reasons,
                               ": make the model as it was when it was saved"));
}

TensorMap copied(const TensorMap& tensors) {
  TensorMap copy;
  for (const auto& [name, tensor] : tensors) copy.emplace(name, tensor.clone());
  return copy;
}

}  // namespace

Checkpoint::Checkpoint(std::string directory, CheckpointOptions options)
    : directory_(std::move(directory)), options_(std::move(options)) {
  if (options_.keep < 1) {
    fail(ErrorCode::kValue, "[Checkpoint] keep ", options_.keep,
         " is out of range: give 1 or more");
  }
  if (options_.prefix.empty() || options_.prefix.find('/') != std::string::npos) {
    fail(ErrorCode::kValue, "[Checkpoint] prefix '", options_.prefix,
         "' is no beginning of a file name: give letters and digits");
  }
}

Checkpoint& Checkpoint::add(std::string name, Module& module) {
  return add_part({std::move(name), [&module] { return module.state_dict(); },
                   [&module](const TensorMap& state) { module.load_state_dict(state); }, true});
}

Checkpoint& Checkpoint::add(std::string name, Generator generator) {
  const auto state = [generator] {
    return TensorMap{{"seed", uint64_tensor(generator.seed())},
                     {"call", uint64_tensor(generator.call())}};
  };
  const auto load = [generator](const TensorMap& state) mutable {
    const uint64_t seed = generator_number(state, "seed");
    const uint64_t call = generator_number(state, "call");
    generator.set_seed(seed);
    generator.set_call(call);
  };
  return add_part({std::move(name), state, load, false});
}

Checkpoint& Checkpoint::add_part(Part part) {
  const bool taken = std::any_of(parts_.begin(), parts_.end(),
                                 [&](const Part& other) { return other.name == part.name; });
  if (part.name.empty() || part.name.find('.') != std::string::npos || taken) {
    fail(ErrorCode::kValue, "[Checkpoint] a part cannot be named '", part.name, "'",
         taken ? ", since another one is" : "", ": give a unique name without '.'");
  }
  parts_.push_back(std::move(part));
  return *this;
}

std::string Checkpoint::save(int64_t step, const Metadata& metadata) const {
  if (step < 0) fail(ErrorCode::kValue, "[Checkpoint] step ", step, " is negative: give 0 or more");
  NoGradGuard no_grad;
  TensorMap tensors;
  for (const Part& part : parts_) {
    for (const auto& [key, tensor] : part.state()) {
      const Tensor host = tensor.device().is_cpu() ? tensor : tensor.to(kCPU);
      tensors.emplace(absl::StrCat(part.name, ".", key),
                      host.is_contiguous() ? host : host.contiguous());
    }
  }
  Metadata all{{kFormatKey, kFormat}, {kStepKey, absl::StrCat(step)}};
  for (const auto& [key, value] : metadata) all.emplace(kUserPrefix + key, value);
  all.emplace(kChecksumKey, checksum_of(tensors, all));
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) {
    fail(ErrorCode::kIo, "[Checkpoint] directory ", directory_,
         " cannot be made: ", error.message());
  }
  std::string path = absl::StrCat(directory_, "/", options_.prefix, "-", number(step), kEnding);
  save_safetensors(path, tensors, all);
  std::vector<std::string> old = paths();
  old.erase(std::remove(old.begin(), old.end(), path), old.end());
  for (size_t i = 0; i + static_cast<size_t>(options_.keep) <= old.size(); ++i) {
    std::filesystem::remove(old[i], error);  // a file that stays does no harm
  }
  return path;
}

std::vector<std::string> Checkpoint::paths() const {
  std::map<int64_t, std::string> found;
  std::error_code error;
  const std::string begin = options_.prefix + "-";
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    const size_t least = begin.size() + std::strlen(kEnding);
    if (name.size() <= least || name.compare(0, begin.size(), begin) != 0 ||
        name.compare(name.size() - std::strlen(kEnding), std::string::npos, kEnding) != 0) {
      continue;
    }
    const auto step = parse_step(std::string_view(name).substr(begin.size(), name.size() - least));
    if (step.has_value()) found.emplace(*step, absl::StrCat(directory_, "/", name));
  }
  std::vector<std::string> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::optional<CheckpointInfo> Checkpoint::load_latest() const {
  const std::vector<std::string> found = paths();
  if (found.empty()) return std::nullopt;
  return load(found.back());
}

CheckpointInfo Checkpoint::load(const std::string& path) const {
  NoGradGuard no_grad;
  const SafetensorsFile file(path);
  const Metadata& metadata = file.metadata();
  const auto entry = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  const auto step = parse_step(entry(kStepKey));
  if (entry(kFormatKey) != kFormat || !step.has_value()) {
    fail_checkpoint(ErrorCode::kIo, path,
                    "it is no checkpoint: give a file that Checkpoint::save wrote");
  }
  TensorMap tensors;
  for (const auto& found : file.entries()) tensors.emplace(found.name, file.load(found.name));
  if (checksum_of(tensors, metadata) != entry(kChecksumKey)) {
    fail_checkpoint(ErrorCode::kIo, path,
                    "it is damaged, since its checksum differs: load an older one");
  }
  std::map<std::string, TensorMap> states, own;
  for (const Part& part : parts_) states[part.name], own[part.name];
  for (const auto& [name, tensor] : tensors) {
    const size_t dot = std::min(name.find('.'), name.size());
    states[name.substr(0, dot)].emplace(name.substr(std::min(dot + 1, name.size())), tensor);
  }
  const std::string unexpected = keys_without(states, own);
  if (!unexpected.empty()) {
    fail_checkpoint(
        ErrorCode::kValue, path,
        absl::StrCat("it has parts that were not added: ", unexpected, "; add what was saved"));
  }
  // Check the modules, and set them last: then nothing can fail.
  for (const Part& part : parts_) {
    if (part.is_module) check_same(path, part.name, part.state(), states[part.name]);
  }
  std::vector<std::pair<const Part*, TensorMap>> before;
  try {
    for (const Part& part : parts_) {
      if (part.is_module) continue;
      before.emplace_back(&part, copied(part.state()));
      part.load(states[part.name]);
    }
  } catch (const Error& error) {
    for (const auto& [part, state] : before) part->load(state);
    fail_checkpoint(error.code(), path,
                    absl::StrCat("part '", before.back().first->name, "': ", error.what()));
  }
  for (const Part& part : parts_) {
    if (part.is_module) part.load(states[part.name]);
  }
  CheckpointInfo info{path, *step, {}};
  const std::string user = kUserPrefix;
  for (const auto& [key, value] : metadata) {
    if (key.compare(0, user.size(), user) == 0) info.metadata[key.substr(user.size())] = value;
  }
  return info;
}

}  // namespace mytorch::nn
