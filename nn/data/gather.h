// Gathering examples into a batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mytorch/list.h"
#include "mytorch/nn/data/dataset.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::data {

// Throws Error(kValue), prefixed with `what`, for an index outside [0, size) and for an empty list.
void check_index(const char* what, int64_t index, int64_t size);
void check_indices(const char* what, IntList indices, int64_t size);

// Stacks the tensors of the examples `indices` along a new first dimension. Throws Error(kShape,
// kType or kDevice) if they differ.
Tensor stack_tensors(const std::vector<Tensor>& examples, IntList indices);

// Stacks each tensor of the examples `indices`, which messages name. Throws Error(kValue) if the
// numbers of tensors differ.
Batch stack_examples(const std::vector<Example>& examples, IntList indices);

// Gathers rows of a contiguous tensor of at least one dimension.
Tensor gather_rows(const Tensor& from, IntList indices);

// Prefetches row `indices[i + 4]` of `rows` while row i is processed. The processor cannot predict
// shuffled rows; without prefetching, most of a gather's time is spent waiting. Prefetches into the
// outer caches, which take more requests at a time than the innermost one.
inline void prefetch_row(const void* rows, size_t row_bytes, IntList indices, size_t i) {
  constexpr size_t kAhead = 4;
  constexpr size_t kLine = 64;
  constexpr size_t kMost = 1024;  // beyond this, the hardware prefetcher follows the row
  if (i + kAhead >= indices.size()) return;
  const auto* row = static_cast<const char*>(rows) + indices[i + kAhead] * row_bytes;
  for (size_t at = 0; at < std::min(row_bytes, kMost); at += kLine) {
    __builtin_prefetch(row + at, 0, 1);
  }
}

}  // namespace mytorch::nn::data
