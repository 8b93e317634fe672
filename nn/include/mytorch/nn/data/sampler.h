// In which order an epoch visits the examples.
#pragma once

#include <cstdint>
#include <vector>

namespace mytorch::nn::data {

// The order is a function of the epoch's number alone, so that training resumed at some epoch sees
// what it would have seen.
class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int64_t size() const = 0;  // indices in an epoch, the same in all epochs
  virtual std::vector<int64_t> indices(uint64_t epoch) const = 0;
};

// 0, 1, ..., size - 1.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t size);
  int64_t size() const override { return size_; }
  std::vector<int64_t> indices(uint64_t epoch) const override;

 private:
  int64_t size_;
};

// A permutation of 0 ... size - 1, uniformly drawn for each epoch: the same for the same seed, size
// and epoch, on every platform.
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
