// The order in which an epoch visits the examples.
#pragma once

#include <cstdint>
#include <vector>

namespace mytorch::nn::data {

// The order depends on the epoch's number alone, so that resumed training sees the same order as
// uninterrupted training.
class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int64_t size() const = 0;  // number of indices per epoch, the same for all epochs
  virtual std::vector<int64_t> indices(uint64_t epoch) const = 0;
};

// Yields 0, 1, ..., size - 1.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t size);
  int64_t size() const override { return size_; }
  std::vector<int64_t> indices(uint64_t epoch) const override;

 private:
  int64_t size_;
};

// Yields a uniformly random permutation of 0, ..., size - 1. It depends on seed, size and epoch
// only, on every platform.
class RandomSampler final : public Sampler {
 public:
  explicit RandomSampler(int64_t size, uint64_t seed = 0);
  int64_t size() const override { return size_; }
  std::vector<int64_t> indices(uint64_t epoch) const override;

 private:
  int64_t size_;
  uint64_t seed_;
};

// Draws `num_samples` indices per epoch with probabilities proportional to `weights`. Without
// replacement, no index occurs twice in an epoch, and none of weight 0 occurs at all. Depends on
// the arguments and the epoch only.
class WeightedRandomSampler final : public Sampler {
 public:
  // Throws Error(kValue) if a weight is negative or not finite, if no weight is positive, and, if
  // drawing without replacement, if fewer than `num_samples` weights are positive.
  WeightedRandomSampler(std::vector<double> weights, int64_t num_samples, bool replacement = true,
                        uint64_t seed = 0);
  int64_t size() const override { return num_samples_; }
  std::vector<int64_t> indices(uint64_t epoch) const override;

 private:
  std::vector<double> weights_;
  std::vector<double> sums_;  // of the weights up to and including each
  int64_t num_samples_;
  bool replacement_;
  uint64_t seed_;
};

}  // namespace mytorch::nn::data
