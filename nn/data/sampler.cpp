#include "mytorch/nn/data/sampler.h"

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
  // One step of the generator decorrelates neighboring seeds and epochs.
  SplitMix64 random(SplitMix64(SplitMix64(seed_)() ^ epoch)());
  std::vector<int64_t> indices = count_up(size_);
  for (size_t i = indices.size(); i > 1; --i) std::swap(indices[i - 1], indices[random.below(i)]);
  return indices;
}

}  // namespace mytorch::nn::data
