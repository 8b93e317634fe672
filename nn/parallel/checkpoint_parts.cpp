#include "nn/parallel/checkpoint_parts.h"

#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "nn/parallel/split_parameters.h"
#include "nn/parallel/tensor_place.h"

namespace mytorch::nn {

namespace {

// Returns the parameter that an optimizer's state belongs to; null for numbers.
const Tensor* parameter_of(const std::string& name, const std::vector<Tensor>& parameters) {
  size_t number = 0;
  const bool numbered = std::sscanf(name.c_str(), "parameter%zu.", &number) == 1;
  if (!numbered || number >= parameters.size() || name.ends_with(".step")) return nullptr;
  return &parameters[number];
}

}  // namespace

const FullyShardedDataParallel::Shard* checkpoint::shard_of(
    const std::string& name, const std::vector<Tensor>& parameters,
    const std::vector<FullyShardedDataParallel::Shard>& shards) {
  const Tensor* parameter = parameter_of(name, parameters);
  if (parameter == nullptr) return nullptr;
  for (const auto& shard : shards) {
    if (shard.tensor.is_same(*parameter)) return &shard;
  }
  return nullptr;
}

std::string checkpoint::parameter_name(const std::string& name,
                                       const std::vector<Tensor>& parameters,
                                       const NamedList<Tensor>& named) {
  const Tensor* parameter = parameter_of(name, parameters);
  if (parameter == nullptr) return "";
  for (const auto& [own, tensor] : named) {
    if (tensor.is_same(*parameter)) return own;
  }
  return "";
}

void checkpoint::append_part(std::vector<TensorPart>* parts, const Splits& splits,
                             const std::string& parameter, const TensorPart& own) {
  const auto split = splits.find(parameter);
  if (split == splits.end()) {
    parts->push_back(own);
  } else {
    parallel::append_parts(parts, own, split->second);
  }
}

namespace {

using checkpoint::append_part;
using checkpoint::Splits;

TensorPart whole(const std::string& name, const Tensor& tensor) {
  return {name, tensor.sizes().vec(), TensorPart::kWhole, 0, 0, tensor};
}

}  // namespace

std::vector<TensorPart> parts_of(const Module& module) {
  const Splits splits = parallel::split_parameters(module);
  std::vector<TensorPart> parts;
  for (const auto& [name, tensor] : module.state_dict()) {
    append_part(&parts, splits, name, whole(absl::StrCat("model.", name), tensor));
  }
  return parts;
}

std::vector<TensorPart> parts_of(const FullyShardedDataParallel& model) {
  const Splits splits = parallel::split_parameters(model.module());
  std::vector<TensorPart> parts;
  std::set<std::string> sharded;
  for (const auto& shard : model.shards()) {
    for (const std::string& name : shard.names) {
      sharded.insert(name);
      append_part(&parts, splits, name,
                  {absl::StrCat("model.", name), shard.sizes, TensorPart::kFlat, shard.begin,
                   shard.end, shard.tensor.detach()});
    }
  }
  for (const auto& [name, tensor] : model.module().state_dict()) {
    if (sharded.count(name) == 0) parts.push_back(whole(absl::StrCat("model.", name), tensor));
  }
  return parts;
}

std::vector<TensorPart> parts_of(const optim::Optimizer& optimizer,
                                 const FullyShardedDataParallel& model) {
  const Splits splits = parallel::split_parameters(model.module());
  const auto shards = model.shards();
  const std::vector<Tensor> parameters = optimizer.parameters();
  std::vector<TensorPart> parts;
  for (const auto& [name, tensor] : optimizer.state_dict()) {
    const std::string full = absl::StrCat("optimizer.", name);
    const auto* shard = checkpoint::shard_of(name, parameters, shards);
    if (shard == nullptr || !(tensor.sizes() == shard->tensor.sizes())) {
      parts.push_back(whole(full, tensor));
      continue;
    }
    append_part(&parts, splits, shard->name,
                {full, shard->sizes, TensorPart::kFlat, shard->begin, shard->end, tensor});
  }
  return parts;
}

std::vector<TensorPart> parts_of(const optim::Optimizer& optimizer, const Module& module) {
  const Splits splits = parallel::split_parameters(module);
  const NamedList<Tensor> named = module.named_parameters();
  const std::vector<Tensor> parameters = optimizer.parameters();
  std::vector<TensorPart> parts;
  for (const auto& [name, tensor] : optimizer.state_dict()) {
    const std::string parameter = checkpoint::parameter_name(name, parameters, named);
    const Tensor* found = named.find(parameter);
    const bool alike = found != nullptr && found->sizes() == tensor.sizes();
    append_part(&parts, splits, alike ? parameter : "",
                whole(absl::StrCat("optimizer.", name), tensor));
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
