#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <ostream>

#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/serialize.h"
#include "nn/serialize/atomic_file.h"
#include "nn/serialize/safetensors_header.h"

namespace mytorch::nn {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using Entry = SafetensorsFile::Entry;

// Returns the entries by name. Their bytes are laid out by decreasing element size, so that each
// tensor is aligned to its elements for readers that map the file.
std::vector<Entry> lay_out(const TensorMap& tensors) {
  std::vector<Entry> entries;
  for (const auto& [name, tensor] : tensors) {
    if (name == kMetadataKey) {
      fail(ErrorCode::kValue, "[save_safetensors] a tensor is named '", kMetadataKey,
           "', which the format reserves: rename it");
    }
    if (!tensor.defined()) {
      fail(ErrorCode::kValue, "[save_safetensors] tensor '", shown(name),
           "' is undefined: omit it or give it a value");
    }
    if (tensor.impl()->abi.layout != 0) {
      fail(ErrorCode::kUnsupported, "[save_safetensors] tensor '", shown(name),
           "' is packed for one backend: unpack it first");
    }
    entries.push_back({name, tensor.dtype(), tensor.sizes().vec(), 0, 0});
  }
  std::vector<Entry*> order;
  order.reserve(entries.size());
  for (Entry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(-element_size(a->dtype), a) < std::pair(-element_size(b->dtype), b);
  });
  int64_t offset = 0;
  for (Entry* entry : order) {
    entry->begin = offset;
    entry->end = offset += count(entry->shape) * element_size(entry->dtype);
  }
  return entries;
}

// Returns the tensor contiguous in host memory; the tensor itself if it is so already.
Tensor host_contiguous(const Tensor& tensor) {
  NoGradGuard no_grad;
  const Tensor host = tensor.device().is_cpu() ? tensor : tensor.to(kCPU);
  return host.is_contiguous() ? host : host.contiguous();
}

void write(const TensorMap& tensors, const Metadata& metadata,
           const std::function<void(const void* data, size_t bytes)>& write) {
  SafetensorsHeader header{lay_out(tensors), metadata};
  const std::string json = format_header(header);
  const uint64_t length = json.size();
  static_assert(sizeof(length) == kPrefixBytes);
  write(&length, sizeof(length));
  write(json.data(), json.size());
  std::sort(header.entries.begin(), header.entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  for (const Entry& entry : header.entries) {
    const Tensor host = host_contiguous(tensors.at(entry.name));
    check_host_access(host, "save");
    write(host.raw_data(), static_cast<size_t>(entry.end - entry.begin));
  }
}

}  // namespace

void save_safetensors(const std::string& path, const TensorMap& tensors, const Metadata& metadata) {
  std::optional<AtomicFile> file;  // opened after the tensors are checked
  write(tensors, metadata, [&](const void* data, size_t bytes) {
    if (!file) file.emplace("save_safetensors", path);
    file->write(data, bytes);
  });
  file->commit();
}

void save_safetensors(std::ostream& stream, const TensorMap& tensors, const Metadata& metadata) {
  write(tensors, metadata, [&](const void* data, size_t bytes) {
    if (bytes > 0)
      stream.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  });
  if (!stream) fail(ErrorCode::kIo, "[save_safetensors] the stream cannot be written");
}

}  // namespace mytorch::nn
