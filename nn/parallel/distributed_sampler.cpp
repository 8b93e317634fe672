#include "mytorch/nn/parallel/distributed_sampler.h"

#include <utility>

#include "core/types/errors.h"

namespace mytorch::nn::data {

DistributedSampler::DistributedSampler(std::shared_ptr<const Sampler> sampler, int ranks, int rank,
                                       bool drop_last)
    : sampler_(std::move(sampler)), ranks_(ranks), rank_(rank), drop_last_(drop_last) {
  if (sampler_ == nullptr) {
    fail(ErrorCode::kValue, "[DistributedSampler] there is no sampler: pass one for all ranks");
  }
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    fail(ErrorCode::kValue, "[DistributedSampler] rank ", rank, " of ", ranks,
         " ranks: the rank must be from 0 to ranks - 1");
  }
}

int64_t DistributedSampler::size() const {
  const int64_t all = sampler_->size();
  return drop_last_ ? all / ranks_ : (all + ranks_ - 1) / ranks_;
}

std::vector<int64_t> DistributedSampler::indices(uint64_t epoch) const {
  const std::vector<int64_t> all = sampler_->indices(epoch);
  std::vector<int64_t> mine;
  if (all.empty()) return mine;
  for (int64_t i = 0; i < size(); ++i) {
    mine.push_back(all[static_cast<size_t>(i * ranks_ + rank_) % all.size()]);
  }
  return mine;
}

}  // namespace mytorch::nn::data
