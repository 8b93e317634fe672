// Where examples come from.
#pragma once

#include <cstdint>

#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::data {

// One example: its input, and what a model should make of it (undefined where there is no target).
struct Example {
  Tensor data;
  Tensor target;
};

// Several examples along a new first dimension.
struct Batch {
  Tensor data;
  Tensor target;
  int64_t size() const { return data.size(0); }
};

// A collection of examples, by index. The workers of a DataLoader read one dataset from several
// threads at once, so the functions below must be safe to call so.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // Example `index` of [0, size()).
  virtual Example get(int64_t index) const = 0;
  // The examples of at least one index, in that order; the same index may come twice. The default
  // stacks what get() gives, whose shapes and types must agree; override it where a batch can be
  // gathered in one pass.
  virtual Batch get_batch(IntList indices) const;
};

// Row i of each tensor is example i; `target` may be undefined. Batches are copies, which have no
// part in the gradients of the tensors, on the tensors' own devices.
class TensorDataset final : public Dataset {
 public:
  // Throws Error(kShape) unless both have a first dimension, of the same length.
  explicit TensorDataset(Tensor data, Tensor target = {});
  int64_t size() const override;
  Example get(int64_t index) const override;  // views
  Batch get_batch(IntList indices) const override;

 private:
  Tensor data_;
  Tensor target_;
};

}  // namespace mytorch::nn::data
