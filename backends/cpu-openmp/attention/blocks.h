// Attention over blocks of scores, which are never stored as a whole.
//
// Forward: a block of rows meets one block of keys after another. Each row keeps its maximum and
// its sum, and rescales what it has summed when a larger maximum appears ("online softmax", Milakov
// and Gimelshein 2018; in blocks, Dao et al., "FlashAttention", 2022). Backward: a block of keys
// meets the blocks of rows, whose weights follow from the logsumexp. Products use the microkernel
// of gemm/, on operands that are first staged: packed as it reads them, as floats or, if the
// processor multiplies these, as pairs of bfloat16.
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

// Factors of the microkernel: floats, or pairs of bfloat16, which are as large. What follows holds
// either, and counts factors: those of n elements are n, or n / 2 rounded up.

// Rows of factors: staged, or an operand in place.
struct StagedRows {
  const float* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides

  const float* at(int64_t b, int64_t h, int64_t r) const {
    return data + b * batch + h * head + r * row;
  }
};

// Panels of factors, which have `panel` lanes each, padded with zeros: factor s of lane l is at
// [s][l].
struct StagedPanels {
  const float* data = nullptr;
  int64_t heads = 0;
  int64_t head = 0, panel = 0;  // strides

  const float* at(int64_t b, int64_t h) const { return data + (b * heads + h) * head; }
};

// Operands as factors. In `..._panels` the lanes are rows, for sums over columns; in `..._sums` the
// lanes are columns, for sums over rows.
struct StagedHeads {
  StagedRows query, grad_output;
  StagedPanels key_panels, value_panels;
  StagedPanels query_sums, key_sums, value_sums, grad_output_sums;
  float* delta = nullptr;       // of each query row: sum(grad_output * output) - grad_logsumexp
  float* grad_query = nullptr;  // rows, before the scale; one sum per chunk of keys
};

struct AttentionFns {
  int64_t lanes;          // of a vector of floats
  int64_t panel;          // lanes of a panel
  int64_t row_block;      // rows that meet a block of keys at a time
  int64_t backward_keys;  // keys of a block, backward
  int64_t depth;          // elements of a factor

  // Stages `n` rows of `width` elements.
  void (*stage_rows)(const void* from, mt_dtype dtype, int64_t row, int64_t col, int64_t n,
                     int64_t width, float* to);
  // Stages a panel of `lanes` lanes: element i of lane l is at from[l * lane + i * step].
  void (*stage_panel)(const void* from, mt_dtype dtype, int64_t lane, int64_t step, int64_t n,
                      int64_t lanes, float* to);
  // Computes rows [first, first + n) of a head of queries. `room` has forward_size() floats.
  int64_t (*forward_size)(int64_t value_width);
  void (*forward)(const AttentionJob& job, const StagedHeads& staged, int64_t batch, int64_t head,
                  int64_t first, int64_t n, float* room);
  // Computes the gradients of every `chunks`-th block of keys of a head of keys, and adds to the
  // sum of grad_query of this chunk. `room` has backward_size() floats.
  int64_t (*backward_size)(int64_t width, int64_t value_width);
  void (*backward)(const AttentionJob& job, const StagedHeads& staged, int64_t batch,
                   int64_t key_head, int64_t chunk, int64_t chunks, float* room);
  // The dot product of two rows.
  float (*row_dot)(const void* a, mt_dtype a_dtype, int64_t a_col, const void* b, mt_dtype b_dtype,
                   int64_t b_col, int64_t n);
  // to = the sum of `count` arrays of n floats, `step` apart, times scale.
  void (*sum_scaled)(const float* from, int64_t step, int64_t count, float scale, int64_t n,
                     float* to);
};

// For operands of any floating type, which become floats.
const AttentionFns* attention_fns();
// For operands of bfloat16, which become pairs; NULL without instructions for them.
const AttentionFns* pair_attention_fns();

// Rounds `width` numbers to the type of a row and stores them there.
void store_row(const float* from, const HeadRows& to, int64_t batch, int64_t head, int64_t row,
               int64_t width);

inline int64_t padded_to(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace mytorch::cpu
