#include "mytorch/nn/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/types/errors.h"
#include "nn/data/split_mix.h"

namespace mytorch::nn::data {
namespace {

int64_t checked_size(const char* sampler, int64_t size) {
  if (size < 0) {
    fail(ErrorCode::kValue, "[", sampler, "] size ", size, " is negative: give 0 or more");
  }
  return size;
}

// One step of the generator decorrelates neighboring seeds and epochs.
SplitMix64 random_of(uint64_t seed, uint64_t epoch) {
  return SplitMix64(SplitMix64(SplitMix64(seed)() ^ epoch)());
}

std::vector<int64_t> count_up(int64_t size) {
  std::vector<int64_t> indices(static_cast<size_t>(size));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return indices;
}

}  // namespace

SequentialSampler::SequentialSampler(int64_t size)
    : size_(checked_size("SequentialSampler", size)) {}

std::vector<int64_t> SequentialSampler::indices(uint64_t) const { return count_up(size_); }

RandomSampler::RandomSampler(int64_t size, uint64_t seed)
    : size_(checked_size("RandomSampler", size)), seed_(seed) {}

std::vector<int64_t> RandomSampler::indices(uint64_t epoch) const {
  SplitMix64 random = random_of(seed_, epoch);
  std::vector<int64_t> indices = count_up(size_);
  shuffle(indices, random);
  return indices;
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, int64_t num_samples,
                                             bool replacement, uint64_t seed)
    : weights_(std::move(weights)),
      num_samples_(checked_size("WeightedRandomSampler", num_samples)),
      replacement_(replacement),
      seed_(seed) {
  double sum = 0;
  int64_t positive = 0;
  sums_.reserve(weights_.size());
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (!(weights_[i] >= 0) || !std::isfinite(weights_[i])) {
      fail(ErrorCode::kValue, "[WeightedRandomSampler] weight ", i, " is ", weights_[i],
           ": give finite weights of 0 or more");
    }
    positive += weights_[i] > 0 ? 1 : 0;
    sums_.push_back(sum += weights_[i]);
  }
  if (positive == 0 || !std::isfinite(sum)) {
    fail(ErrorCode::kValue, "[WeightedRandomSampler] the sum of the ", weights_.size(),
         " weights is ", sum, ": give weights with a finite positive sum");
  }
  if (!replacement_ && num_samples_ > positive) {
    fail(ErrorCode::kValue, "[WeightedRandomSampler] ", num_samples_,
         " samples are to be drawn without replacement, but only ", positive,
         " weights are positive: draw fewer, or with replacement");
  }
}

std::vector<int64_t> WeightedRandomSampler::indices(uint64_t epoch) const {
  SplitMix64 random = random_of(seed_, epoch);
  std::vector<int64_t> indices;
  if (replacement_) {
    indices.reserve(static_cast<size_t>(num_samples_));
    for (int64_t i = 0; i < num_samples_; ++i) {
      // The sum before an index of weight 0 equals its own, so upper_bound never finds that index.
      // Rounding may give the total itself: take the last index of positive weight then.
      const double at = random.uniform() * sums_.back();
      auto found = std::upper_bound(sums_.begin(), sums_.end(), at);
      if (found == sums_.end()) found = std::lower_bound(sums_.begin(), sums_.end(), sums_.back());
      indices.push_back(found - sums_.begin());
    }
    return indices;
  }
  // The order of exponential arrival times of rates `weights` (Efraimidis and Spirakis, 2006).
  std::vector<std::pair<double, int64_t>> arrivals;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] == 0) continue;
    arrivals.emplace_back(-std::log1p(-random.uniform()) / weights_[i], static_cast<int64_t>(i));
  }
  const auto last = arrivals.begin() + num_samples_;
  std::partial_sort(arrivals.begin(), last, arrivals.end());
  for (auto at = arrivals.begin(); at != last; ++at) indices.push_back(at->second);
  return indices;
}

}  // namespace mytorch::nn::data
