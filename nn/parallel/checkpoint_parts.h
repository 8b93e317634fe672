// The parts of optimizers whose parameters are shards.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "nn/parallel/split_parameters.h"

namespace mytorch::nn::checkpoint {

// Returns the shard that an optimizer's state, such as "parameter3.exp_avg", belongs to; null for
// numbers.
const FullyShardedDataParallel::Shard* shard_of(
    const std::string& name, const std::vector<Tensor>& parameters,
    const std::vector<FullyShardedDataParallel::Shard>& shards);

// Parameters that parallelize() has split, by name.
using Splits = std::map<std::string, parallel::SplitParameter>;
// Appends this rank's tensor, which is a parameter or, in its shape, belongs to one; or, if that is
// split, the parts of the whole tensor that this one consists of.
void append_part(std::vector<TensorPart>* parts, const Splits& splits, const std::string& parameter,
                 const TensorPart& own);

// Returns the name, in a module, of the parameter that such a state belongs to; "" for numbers.
std::string parameter_name(const std::string& name, const std::vector<Tensor>& parameters,
                           const NamedList<Tensor>& named);

}  // namespace mytorch::nn::checkpoint
