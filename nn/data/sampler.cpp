#include "mytorch/nn/data/sampler.h"

#include <numeric>
#include <utility>

#include "core/types/errors.h"

namespace mytorch::nn::data {
namespace {

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): small, and the same on every platform, unlike
// std::shuffle.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  uint64_t operator()() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Uniform in [0, n), without bias (Lemire, ACM TOMACS 29, 2019).
  uint64_t below(uint64_t n) {
    unsigned __int128 product = static_cast<unsigned __int128>((*this)()) * n;
    if (static_cast<uint64_t>(product) < n) {
      const uint64_t threshold = (0 - n) % n;
      while (static_cast<uint64_t>(product) < threshold) {
        product = static_cast<unsigned __int128>((*this)()) * n;
      }
    }
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  uint64_t state_;
};

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
