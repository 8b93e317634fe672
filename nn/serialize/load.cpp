#include <istream>

#include "core/types/errors.h"
#include "mytorch/nn/safetensors_files.h"
#include "mytorch/nn/serialize.h"
#include "nn/serialize/safetensors_reader.h"

namespace mytorch::nn {

struct SafetensorsFile::State : SafetensorsReader {
  using SafetensorsReader::SafetensorsReader;
};

SafetensorsFile::SafetensorsFile(const std::string& path) : state_(new State(path)) {}
SafetensorsFile::SafetensorsFile(std::istream& stream) : state_(new State(stream)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::vector<SafetensorsFile::Entry>& SafetensorsFile::entries() const {
  return state_->header().entries;
}

const Metadata& SafetensorsFile::metadata() const { return state_->header().metadata; }

bool SafetensorsFile::contains(const std::string& name) const {
  return state_->find(name) != nullptr;
}

Tensor SafetensorsFile::load(const std::string& name, Device device) const {
  const Entry* entry = state_->find(name);
  if (entry == nullptr) {
    fail(ErrorCode::kValue, "[load_safetensors] file ", state_->path(), " has no tensor '",
         shown(name), "': entries() lists what it has");
  }
  return state_->load(*entry, device);
}

TensorMap load_safetensors(const std::string& path, Device device) {
  const SafetensorsFiles files(path);
  TensorMap tensors;
  for (const std::string& name : files.names()) {
    tensors.emplace_hint(tensors.end(), name, files.load(name, device));
  }
  return tensors;
}

TensorMap load_safetensors(std::istream& stream, Device device) {
  const SafetensorsFile file(stream);
  TensorMap tensors;
  for (const auto& entry : file.entries()) {
    tensors.emplace_hint(tensors.end(), entry.name, file.load(entry.name, device));
  }
  return tensors;
}

}  // namespace mytorch::nn
