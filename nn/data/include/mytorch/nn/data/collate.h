// Making batches of examples.
#pragma once

#include <vector>

#include "mytorch/nn/data/dataset.h"
#include "mytorch/std_function.h"

namespace mytorch::nn::data {

// Makes a batch of one or more examples. A DataLoader calls it on its workers.
using Collate = std::function<Batch(const std::vector<Example>&)>;

// Stacks each tensor of the examples along a new first dimension. Throws Error(kValue) if the
// examples have different numbers of tensors; Error(kShape, kType or kDevice) if the tensors
// differ.
Batch stack_examples(const std::vector<Example>& examples);

// Leaves the examples, whose tensors may have any shapes, in the batch's `examples`:
//
//   DataLoader loader(images, {.batch_size = 8, .collate = keep_examples});
//   for (const Batch& batch : loader) for (const auto& [image, boxes] : batch.examples) { ... }
Batch keep_examples(const std::vector<Example>& examples);

// Stacks tensors whose first dimensions may differ: each is filled up at its end with
// `padding_value`, to the longest. Returns (n, longest, ...). Throws Error(kShape) if the tensors
// are 0-dim or differ in other dimensions; Error(kType or kDevice) if types or devices differ.
Tensor pad_sequence(const std::vector<Tensor>& sequences, double padding_value = 0);

// Returns a collate function for sequences of different lengths. It pads `data`, stacks the targets
// and the other tensors, and appends the lengths, int64 (n), as the batch's last tensor:
//
//   DataLoader loader(lines, {.batch_size = 32, .collate = pad_examples()});
//   for (const Batch& batch : loader) { const Tensor& lengths = batch.others.back(); ... }
Collate pad_examples(double padding_value = 0);

}  // namespace mytorch::nn::data
