#include "nn/parallel/checkpoint_parts.h"

#include <cstdint>
#include <cstdio>
#include <set>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "nn/parallel/tensor_place.h"

namespace mytorch::nn {

const FullyShardedDataParallel::Shard* checkpoint::shard_of(
    const std::string& name, const std::vector<Tensor>& parameters,
    const std::vector<FullyShardedDataParallel::Shard>& shards) {
  size_t number = 0;
  if (std::sscanf(name.c_str(), "parameter%zu.", &number) != 1 || number >= parameters.size() ||
      name.ends_with(".step")) {
    return nullptr;
  }
  for (const auto& shard : shards) {
    if (shard.tensor.is_same(parameters[number])) return &shard;
  }
  return nullptr;
}

std::vector<TensorPart> parts_of(const Module& module) {
  std::vector<TensorPart> parts;
  for (const auto& [name, tensor] : module.state_dict()) {
    parts.push_back(
        {absl::StrCat("model.", name), tensor.sizes().vec(), TensorPart::kWhole, 0, 0, tensor});
  }
  return parts;
}

std::vector<TensorPart> parts_of(const FullyShardedDataParallel& model) {
  std::vector<TensorPart> parts;
  std::set<std::string> split;
  for (const auto& shard : model.shards()) {
    for (const std::string& name : shard.names) {
      split.insert(name);
      parts.push_back({absl::StrCat("model.", name), shard.sizes, TensorPart::kFlat, shard.begin,
                       shard.end, shard.tensor.detach()});
    }
  }
  for (const auto& [name, tensor] : model.module().state_dict()) {
    if (split.count(name) != 0) continue;
    parts.push_back(
        {absl::StrCat("model.", name), tensor.sizes().vec(), TensorPart::kWhole, 0, 0, tensor});
  }
  return parts;
}

std::vector<TensorPart> parts_of(const optim::Optimizer& optimizer,
                                 const FullyShardedDataParallel& model) {
  const auto shards = model.shards();
  const std::vector<Tensor> parameters = optimizer.parameters();
  std::vector<TensorPart> parts;
  for (const auto& [name, tensor] : optimizer.state_dict()) {
    TensorPart part{
        absl::StrCat("optimizer.", name), tensor.sizes().vec(), TensorPart::kWhole, 0, 0, tensor};
    if (const auto* shard = checkpoint::shard_of(name, parameters, shards);
        shard != nullptr && tensor.sizes() == shard->tensor.sizes()) {
      part = {part.name, shard->sizes, TensorPart::kFlat, shard->begin, shard->end, tensor};
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

TensorPart block_of(TensorPart part, int64_t dim, int64_t begin, int64_t size) {
  if (dim < 0 || dim >= static_cast<int64_t>(part.sizes.size())) {
    fail(ErrorCode::kValue, "[block_of] dim is ", dim, ", and '", part.name, "' has shape ",
         shape_str(part.sizes), ": give one of its dimensions, from 0");
  }
  if (part.outer_sizes.empty()) part.outer_sizes = part.sizes;
  part.origin.resize(part.sizes.size());
  part.outer_sizes[static_cast<size_t>(dim)] = size;
  part.origin[static_cast<size_t>(dim)] += begin;
  checkpoint::check_block(part);
  return part;
}

}  // namespace mytorch::nn
