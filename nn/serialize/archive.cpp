#include "mytorch/nn/archive.h"

#include <utility>

#include "core/types/errors.h"

namespace mytorch {
namespace serialize {

void OutputArchive::write(const std::string& key, const Tensor& value, bool /*is_buffer*/) {
  if (!tensors_.emplace(key, value).second) {
    fail(ErrorCode::kValue, "[OutputArchive] '", key, "' was written before: choose another name");
  }
}

void OutputArchive::write(const std::string& key, const OutputArchive& value) {
  for (const auto& [name, tensor] : value.tensors()) write(absl::StrCat(key, ".", name), tensor);
}

void OutputArchive::save_to(const std::string& path) const { nn::save_safetensors(path, tensors_); }
void OutputArchive::save_to(std::ostream& stream) const { nn::save_safetensors(stream, tensors_); }

void InputArchive::load_from(const std::string& path, std::optional<Device> device) {
  tensors_ = Source(path).read(device);
}
void InputArchive::load_from(std::istream& stream, std::optional<Device> device) {
  tensors_ = Source(stream).read(device);
}

bool InputArchive::try_read(const std::string& key, Tensor& value, bool /*is_buffer*/) const {
  const auto found = tensors_.find(key);
  if (found == tensors_.end()) return false;
  value = found->second;
  return true;
}

bool InputArchive::try_read(const std::string& key, InputArchive& value) const {
  const std::string prefix = key + ".";
  nn::TensorMap part;
  for (const auto& [name, tensor] : tensors_) {
    if (name.starts_with(prefix)) part.emplace(name.substr(prefix.size()), tensor);
  }
  if (part.empty()) return false;
  value.tensors_ = std::move(part);
  return true;
}

std::vector<std::string> InputArchive::keys() const {
  std::vector<std::string> keys;
  for (const auto& [name, tensor] : tensors_) {
    std::string key = name.substr(0, name.find('.'));
    if (keys.empty() || keys.back() != key) keys.push_back(std::move(key));
  }
  return keys;
}

namespace {

[[noreturn]] void refuse(const std::string& key, const InputArchive& archive) {
  fail(ErrorCode::kValue, "[InputArchive] there is no '", key, "': it has ",
       absl::StrJoin(archive.keys(), ", "));
}

}  // namespace

void InputArchive::read(const std::string& key, Tensor& value, bool is_buffer) const {
  if (!try_read(key, value, is_buffer)) refuse(key, *this);
}
void InputArchive::read(const std::string& key, InputArchive& value) const {
  if (!try_read(key, value)) refuse(key, *this);
}

void Target::write(const nn::TensorMap& tensors) const {
  if (stream_ != nullptr) return nn::save_safetensors(*stream_, tensors);
  nn::save_safetensors(path_, tensors);
}

nn::TensorMap Source::read(std::optional<Device> device) const {
  const Device to = device.value_or(Device(kCPU));
  return stream_ != nullptr ? nn::load_safetensors(*stream_, to) : nn::load_safetensors(path_, to);
}

}  // namespace serialize

void save(const Tensor& tensor, const serialize::Target& target) {
  save(std::vector<Tensor>{tensor}, target);
}

void save(const std::vector<Tensor>& tensors, const serialize::Target& target) {
  nn::TensorMap named;
  for (size_t i = 0; i < tensors.size(); ++i) named.emplace(std::to_string(i), tensors[i]);
  target.write(named);
}

void load(Tensor& tensor, const serialize::Source& source, std::optional<Device> device) {
  nn::TensorMap read = source.read(device);
  if (read.size() != 1) {
    fail(ErrorCode::kValue, "[load] there are ", read.size(),
         " tensors: load into a std::vector<Tensor>, or use load_safetensors");
  }
  tensor = std::move(read.begin()->second);
}

void load(std::vector<Tensor>& tensors, const serialize::Source& source,
          std::optional<Device> device) {
  const nn::TensorMap read = source.read(device);
  std::vector<Tensor> list;
  for (size_t i = 0; i < read.size(); ++i) {
    const auto found = read.find(std::to_string(i));
    if (found == read.end()) {
      fail(ErrorCode::kValue, "[load] there is no tensor '", i, "' among ", read.size(),
           ": the names are not those of a list; use load_safetensors");
    }
    list.push_back(found->second);
  }
  tensors = std::move(list);
}

}  // namespace mytorch
