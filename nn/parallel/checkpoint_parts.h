// The parts of optimizers whose parameters are shards.
#pragma once

#include <string>
#include <vector>

#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"

namespace mytorch::nn::checkpoint {

// Returns the shard that an optimizer's state, such as "parameter3.exp_avg", belongs to; null for
// numbers.
const FullyShardedDataParallel::Shard* shard_of(
    const std::string& name, const std::vector<Tensor>& parameters,
    const std::vector<FullyShardedDataParallel::Shard>& shards);

}  // namespace mytorch::nn::checkpoint
