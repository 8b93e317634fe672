// The part of a data set that a rank visits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mytorch/nn/data/sampler.h"

namespace mytorch::nn::data {

// Deals the indices of another sampler to ranks: rank r of n takes the indices number r, r + n, ...
// All ranks take equally many: the first indices are dealt again at the end, or with `drop_last`
// the last ones left out. A loader whose batches have b examples on each of n ranks sees together
// what one process sees in batches of n * b.
class DistributedSampler final : public Sampler {
 public:
  // The ranks must have equal samplers. Throws Error(kValue) for a rank that is none.
  DistributedSampler(std::shared_ptr<const Sampler> sampler, int ranks, int rank,
                     bool drop_last = false);
  int64_t size() const override;
  std::vector<int64_t> indices(uint64_t epoch) const override;

 private:
  std::shared_ptr<const Sampler> sampler_;
  int ranks_;
  int rank_;
  bool drop_last_;
};

}  // namespace mytorch::nn::data
