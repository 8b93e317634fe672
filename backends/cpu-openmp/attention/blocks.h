// Attention over blocks of scores, which are never stored as a whole.
//
// Forward: a block of rows meets one block of keys after another. Each row keeps its maximum and
// its sum, and rescales what it has summed when a larger maximum appears ("online softmax", Milakov
// and Gimelshein 2018; in blocks, Dao et al., "FlashAttention", 2022). Backward: a block of keys
// meets the blocks of rows, whose weights follow from the logsumexp. Products use the microkernel
// of gemm/, on operands that are first staged: converted to float, and packed as it reads them.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"

namespace mytorch::cpu {

// A 4-dim operand (batch, head, row, column). Strides are in elements, 0 for broadcast dimensions.
struct HeadRows {
  void* data = nullptr;
  mt_dtype dtype = {};
  int64_t batch = 0, head = 0, row = 0, col = 0;
};

struct AttentionJob {
  int64_t batch, heads, key_heads, rows, keys, width, value_width;
  HeadRows query, key, value;
  HeadRows mask;        // of bools or floats; data is NULL if there is none
  HeadRows slopes;      // float; data is NULL if there are none
  int64_t left, right;  // -1: unbounded
  int64_t diagonal;
  float softcap;  // 0: none
  float scale;
  float dropout_p;      // 0: none
  uint64_t seed, call;  // of dropout
  HeadRows output;
  HeadRows logsumexp;  // float, (batch, head, row)
  // Backward only.
  HeadRows grad_output, grad_logsumexp;       // the latter may be NULL
  HeadRows grad_query, grad_key, grad_value;  // data is NULL for unwanted ones
  // Sums of the gradient of a float mask, in float and of the mask's shape. If the keys are
  // broadcast, each chunk of keys has its own, `mask_chunk` apart; otherwise mask_chunk is 0. Calls
  // that run at the same time must not share elements.
  HeadRows mask_sums;
  int64_t mask_chunk;
};

// Rows of floats, which are followed by zeros up to a whole vector: staged, or an operand in place.
struct StagedRows {
  const float* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides

  const float* at(int64_t b, int64_t h, int64_t r) const {
    return data + b * batch + h * head + r * row;
  }
};

// Operands in float. A panel has kPanel keys, element (key, d) at [d][key]; the last panel of a
// head is padded with zeros.
struct StagedHeads {
  StagedRows query, key, value, grad_output;
  float* key_panels = nullptr;  // times scale
  float* value_panels = nullptr;
  float* delta = nullptr;       // of each query row: sum(grad_output * output) - grad_logsumexp
  float* grad_query = nullptr;  // rows, before the scale; one sum per chunk of keys
};

// The keys of sequences in pages: key j of a sequence is row j % slots of page table[j / slots].
// Strides of pages are those of `batch` in the operands.
struct KeyPages {
  int64_t slots;
  int64_t columns;         // of the table
  const int64_t* table;    // (batch, columns)
  const int64_t* lengths;  // (batch)
};

struct AttentionFns {
  int64_t lanes;      // of a vector of floats
  int64_t panel;      // keys
  int64_t row_block;  // rows that meet a block of keys at a time
  int64_t key_block;  // keys of a block, forward; half as many backward

  // Stages `n` rows of `width` elements as rows padded to `padded` elements.
  void (*stage_rows)(const void* from, mt_dtype dtype, int64_t row, int64_t col, int64_t n,
                     int64_t width, int64_t padded, float* to);
  // Stages `n` <= panel rows, times `scale`, as one panel.
  void (*stage_panel)(const void* from, mt_dtype dtype, int64_t row, int64_t col, int64_t n,
                      int64_t width, float scale, float* to);
  // Computes rows [first, first + n) of a head of queries. `room` has forward_room() floats.
  void (*forward)(const AttentionJob& job, const StagedHeads& staged, int64_t batch, int64_t head,
                  int64_t first, int64_t n, float* room);
  // Attends with `n` <= kFewRows rows of all heads that share `key_head` to keys [begin, end), in
  // place. Writes for each row, (batch, head, row), the maximum of its scores, their sum, and the
  // sum of values, from float kSumsBegin on, to partial_size() floats; `step` is the distance
  // between rows. `room` has few_room() floats. `pages` may be NULL.
  void (*few)(const AttentionJob& job, const KeyPages* pages, int64_t batch, int64_t key_head,
              int64_t first, int64_t n, int64_t begin, int64_t end, float* room, float* partial,
              int64_t step);
  // Combines the results of `few` over `count` ranges of keys, and stores the row.
  void (*combine)(const AttentionJob& job, int64_t batch, int64_t head, int64_t row, int64_t count,
                  float* partial);
  // Computes the gradients of every `chunks`-th block of keys of a head of keys, and adds to the
  // sum of grad_query of this chunk. `room` has backward_room() floats.
  void (*backward)(const AttentionJob& job, const StagedHeads& staged, int64_t batch,
                   int64_t key_head, int64_t chunk, int64_t chunks, float* room);
  // The dot product of two rows.
  float (*row_dot)(const float* a, const float* b, int64_t padded);
  // to = the sum of `count` arrays of n floats, `step` apart, times scale.
  void (*sum_scaled)(const float* from, int64_t step, int64_t count, float scale, int64_t n,
                     float* to);
};

const AttentionFns* attention_fns();

// With this many rows attention is bound by the memory of the keys, which `few` reads once.
inline constexpr int64_t kFewRows = 8;
inline constexpr int64_t kSumsBegin = 16;
// Ranges of keys begin at multiples of this.
inline constexpr int64_t kFewKeys = 128;

// Rounds `width` numbers to the type of a row and stores them there.
void store_row(const float* from, const HeadRows& to, int64_t batch, int64_t head, int64_t row,
               int64_t width);

inline int64_t padded_to(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
int64_t forward_room(const AttentionFns& fns, int64_t width, int64_t value_width);
int64_t few_room(const AttentionFns& fns, int64_t width, int64_t value_width);
int64_t partial_size(const AttentionFns& fns, int64_t value_width);
int64_t backward_room(const AttentionFns& fns, int64_t width, int64_t value_width);

}  // namespace mytorch::cpu
