// Datasets: collections of examples.
#pragma once

#include <cstdint>

#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::data {

// One example: an input and its target (undefined if there is none).
struct Example {
  Tensor data;
  Tensor target;
};

// Several examples, stacked along a new first dimension.
struct Batch {
  Tensor data;
  Tensor target;
  int64_t size() const { return data.size(0); }
};

// An indexed collection of examples. The workers of a DataLoader call the functions below from
// several threads at once, so they must be thread-safe. Random augmentation uses operators without
// a generator argument, or another generator seeded with default_generator().seed(): its results
// then depend on the loader's seed, the epoch and the example alone.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // Returns example `index`, 0 <= index < size().
  virtual Example get(int64_t index) const = 0;
  // Returns the examples at the given indices (at least one, possibly repeated), in order. The
  // default stacks the results of get(), whose shapes and types must agree. Override it if a batch
  // can be gathered in one pass.
  virtual Batch get_batch(IntList indices) const;
};

// A dataset whose example i is row i of each tensor; `target` may be undefined. Batches are copies,
// detached from the tensors and on the same device.
class TensorDataset final : public Dataset {
 public:
  // Throws Error(kShape) unless both tensors have a first dimension of the same length.
  explicit TensorDataset(Tensor data, Tensor target = {});
  int64_t size() const override;
  Example get(int64_t index) const override;  // returns views
  Batch get_batch(IntList indices) const override;

 private:
  Tensor data_;
  Tensor target_;
};

}  // namespace mytorch::nn::data
