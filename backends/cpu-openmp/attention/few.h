// Attention of few rows, which is bound by the memory of the keys: they are read once, in place.
#pragma once

#include <cstdint>

#include "backends/cpu-openmp/attention/blocks.h"

namespace mytorch::cpu {

// With this many rows attention is bound by the memory of the keys, which `few` reads once.
inline constexpr int64_t kFewRows = 8;
inline constexpr int64_t kSumsBegin = 16;
// Ranges of keys begin at multiples of this.
inline constexpr int64_t kFewKeys = 128;

// The keys of sequences in pages: key j of a sequence is row j % slots of page table[j / slots].
// Strides of pages are those of `batch` in the operands.
struct KeyPages {
  int64_t slots;
  int64_t columns;         // of the table
  const int64_t* table;    // (batch, columns)
  const int64_t* lengths;  // (batch)
};

struct FewFns {
  int64_t lanes;  // of a vector of floats

  // Attends with `n` <= kFewRows rows of all heads that share `key_head` to keys [begin, end), in
  // place. Writes for each row, (batch, head, row), the maximum of its scores, their sum, and the
  // sum of values, from float kSumsBegin on, to partial_size() floats; `step` is the distance
  // between rows. `room` has few_size() floats. `pages` may be NULL.
  int64_t (*few_size)(int64_t width, int64_t value_width);
  void (*few)(const AttentionJob& job, const KeyPages* pages, int64_t batch, int64_t key_head,
              int64_t first, int64_t n, int64_t begin, int64_t end, float* room, float* partial,
              int64_t step);
  // Combines the results of `few` over `count` ranges of keys, and stores the row.
  void (*combine)(const AttentionJob& job, int64_t batch, int64_t head, int64_t row, int64_t count,
                  float* partial);
};

const FewFns* few_fns();

inline int64_t partial_size(const FewFns& fns, int64_t value_width) {
  return kSumsBegin + padded_to(value_width, fns.lanes);
}

}  // namespace mytorch::cpu
