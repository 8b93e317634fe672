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

}  // namespace mytorch::nn::data
