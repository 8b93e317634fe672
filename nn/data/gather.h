// How examples become a batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::data {

// Throws Error(kValue), in the name of `what`, for an index outside [0, size) and for no index.
void check_index(const char* what, int64_t index, int64_t size);
void check_indices(const char* what, IntList indices, int64_t size);

// The tensors of examples `indices` along a new first dimension; Error(kShape), (kType), (kDevice)
// unless they are alike.
Tensor stack_examples(const std::vector<Tensor>& examples, IntList indices);

// Rows of a contiguous tensor of at least one dimension.
Tensor gather_rows(const Tensor& from, IntList indices);

// Asks for row `indices[i + 4]` of `rows` while row i is worked on. Shuffled rows come in no order
// that the processor could guess; without this most of a gather's time is waiting. The outer caches
// take more requests at a time than the innermost.
inline void prefetch_row(const void* rows, size_t row_bytes, IntList indices, size_t i) {
  constexpr size_t kAhead = 4;
  constexpr size_t kLine = 64;
  constexpr size_t kMost = 1024;  // past this the processor has seen that the row goes on
  if (i + kAhead >= indices.size()) return;
  const auto* row = static_cast<const char*>(rows) + indices[i + kAhead] * row_bytes;
  for (size_t at = 0; at < std::min(row_bytes, kMost); at += kLine) {
    __builtin_prefetch(row + at, 0, 1);
  }
}

}  // namespace mytorch::nn::data
