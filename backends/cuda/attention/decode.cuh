// Attention of a few query rows over many keys, which lie in pages or in one tensor. The rows that
// share a key head, a row per query head and query, are computed together, so that each key is read
// once for all of them. The keys of a sequence are split among thread blocks; a second kernel
// merges the splits in order. The grid depends on shapes only, because lengths are in device
// memory: a block derives its keys from the length.
#pragma once

#include <cmath>
#include <cstdint>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/runtime/faults.h"

namespace mytorch::cuda::decode {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kStep = 16;  // keys that a warp multiplies at a time; splits begin at multiples
constexpr float kLog2e = 1.4426950408889634F, kLn2 = 0.6931471805599453F;

struct DecodeCall {
  const void *query, *key, *value;
  const void *table, *lengths;  // null: page b has the keys of sequence b
  const float* slopes;          // null: none
  void* out;
  float* logsumexp;
  float*
      partial;  // (batch, key head, row, split, value_width + 2): sums, their maximum, their total
  int64_t query_stride[4], out_stride[4];  // batch, head, query, column
  int64_t key_stride[4], value_stride[4];  // page, slot, head, column
  int64_t sum_stride[3], table_stride[2], slope_stride[2], length_stride;
  uint32_t table_type, length_type;
  int slots, pages;      // per page; per sequence
  int64_t diagonal;      // the position of query 0, if there are no lengths
  int64_t left, right;   // -1: unbounded
  int key_heads, group;  // query heads per key head
  int queries, rows;     // rows = group * queries
  int width, value_width;
  int splits;
  float softcap, scale;
  Faults faults;
};

// The keys begin <= j < end.
struct Keys {
  int begin, end;
};

// The part of a thread block.
struct Part {
  int64_t batch;
  int key_head, split;
  int first_row;  // of the tile
  int64_t place;  // the position of query 0
  int keys;       // of the sequence
  Keys seen;      // by any query
  Keys own;       // of the split

  template <int kRows>
  static __device__ Part of_block(const DecodeCall& p) {
    Part part;
    part.split = blockIdx.x;
    part.key_head = blockIdx.y % p.key_heads;
    part.first_row = static_cast<int>(blockIdx.y / p.key_heads) * kRows;
    part.batch = blockIdx.z;
    int64_t length = p.slots;
    part.place = p.diagonal;
    if (p.lengths != nullptr) {
      length = load_index(p.lengths, part.batch * p.length_stride, p.length_type);
      part.place = length - p.queries;
      length = min(max(length, int64_t{0}), int64_t{p.slots} * p.pages);
    }
    part.keys = static_cast<int>(length);
    part.seen = {part.seen_by(p, 0).begin, part.seen_by(p, p.queries - 1).end};
    const int first = part.seen.begin / kStep;
    const int steps = max(0, (part.seen.end + kStep - 1) / kStep - first);
    const int each = (steps + p.splits - 1) / p.splits;
    const int begin = min(part.split * each, steps), end = min(begin + each, steps);
    part.own = {max((first + begin) * kStep, part.seen.begin),
                min((first + end) * kStep, part.seen.end)};
    return part;
  }

  __device__ Keys seen_by(const DecodeCall& p, int query) const {
    const int64_t at = place + query;
    const auto clamped = [&](int64_t j) {
      return static_cast<int>(min(max(j, int64_t{0}), int64_t{keys}));
    };
    return {p.left < 0 ? 0 : clamped(at - p.left), p.right < 0 ? keys : clamped(at + p.right + 1)};
  }
  __device__ int64_t head_of(const DecodeCall& p, int row) const {
    return int64_t{key_head} * p.group + row / p.queries;
  }
};

// What the scores of a row depend on. A row past the last sees no key.
struct Row {
  Keys seen;
  int64_t place;
  float slope;

  static __device__ Row of(const DecodeCall& p, const Part& part, int row) {
    if (row >= p.rows) return {};
    const float slope =
        p.slopes == nullptr
            ? 0.0F
            : p.slopes[part.batch * p.slope_stride[0] + part.head_of(p, row) * p.slope_stride[1]];
    return {part.seen_by(p, row % p.queries), part.place + row % p.queries, slope};
  }
  // Returns the score of key j from the product of query and key.
  __device__ float score(const DecodeCall& p, float product, int j) const {
    float s = product * p.scale;
    if (p.softcap > 0) s = p.softcap * tanhf(s / p.softcap);
    if (p.slopes != nullptr) s -= slope * fabsf(static_cast<float>(place - j));
    return j >= seen.begin && j < seen.end ? s : -INFINITY;
  }
};

// A key's page and its slot there.
struct Slot {
  int64_t page;
  int slot;

  static __device__ Slot of(const DecodeCall& p, const Part& part, int j) {
    if (p.table == nullptr) return {part.batch, j};
    const int column = static_cast<int>(static_cast<uint32_t>(j) / static_cast<uint32_t>(p.slots));
    const int64_t page = load_index(
        p.table, part.batch * p.table_stride[0] + column * p.table_stride[1], p.table_type);
    return {p.faults.check(page) ? page : 0, j - column * p.slots};
  }
  __device__ int64_t offset(const int64_t (&stride)[4]) const {
    return page * stride[0] + slot * stride[1];
  }
};

// The shift that keeps exp(-inf - shift) at 0 if all scores are -inf.
__device__ __forceinline__ float finite(float most) { return most == -INFINITY ? 0.0F : most; }

template <class T>
__device__ void write_row(const DecodeCall& p, int64_t batch, int64_t head, int query, float most,
                          float total, int column, float sum) {
  T* const to = static_cast<T*>(p.out) + batch * p.out_stride[0] + head * p.out_stride[1] +
                query * p.out_stride[2];
  to[column * p.out_stride[3]] = convert<T>(total == 0 ? 0.0F : sum / total);
  if (column == 0) {
    p.logsumexp[batch * p.sum_stride[0] + head * p.sum_stride[1] + query * p.sum_stride[2]] =
        total == 0 ? -INFINITY : finite(most) + logf(total);
  }
}

// Merges the sums that kParts groups of threads have of kRows rows. sums[g][r][c] is the sum of
// column c of row r, relative to the maximum mosts[g][r]; totals[g][r] is that of the weights.
template <class T, int kParts, int kRows, int kColumns>
struct Merge {
  float mosts[kParts][kRows], totals[kParts][kRows], sums[kParts][kRows][kColumns];

  __device__ void write(const DecodeCall& p, const Part& part, int first_row) const {
#pragma unroll 1
    for (int r = 0; r < kRows; ++r) {
      const int row = first_row + r;
      if (row >= p.rows) return;
      float most = -INFINITY, total = 0, weight[kParts];
#pragma unroll
      for (int g = 0; g < kParts; ++g) most = fmaxf(most, mosts[g][r]);
#pragma unroll
      for (int g = 0; g < kParts; ++g) {
        weight[g] = expf(mosts[g][r] - finite(most));
        total += weight[g] * totals[g][r];
      }
#pragma unroll 1  // one or two columns
      for (int c = threadIdx.x; c < p.value_width; c += kThreads) {
        float sum = 0;
#pragma unroll
        for (int g = 0; g < kParts; ++g) sum += weight[g] * sums[g][r][c];
        if (p.splits == 1) {
          write_row<T>(p, part.batch, part.head_of(p, row), row % p.queries, most, total, c, sum);
          continue;
        }
        float* const to =
            p.partial +
            (((part.batch * p.key_heads + part.key_head) * p.rows + row) * p.splits + part.split) *
                (p.value_width + 2);
        to[c] = sum;
        if (c == 0) {
          to[p.value_width] = most;
          to[p.value_width + 1] = total;
        }
      }
    }
  }
};

// Merges the splits of a row; one block per row.
template <class T>
__global__ void __launch_bounds__(kThreads) merge_splits(const __grid_constant__ DecodeCall p) {
  const int row = blockIdx.x % p.rows;
  const int64_t pair = blockIdx.x / p.rows, batch = pair / p.key_heads, head = pair % p.key_heads;
  const int each = p.value_width + 2;
  const float* const from = p.partial + int64_t{blockIdx.x} * p.splits * each;
  const float* const mosts = from + p.value_width;
  float most = -INFINITY, total = 0;
  for (int s = 0; s < p.splits; ++s) most = fmaxf(most, mosts[s * each]);
  for (int s = 0; s < p.splits; ++s) {
    total += expf(mosts[s * each] - finite(most)) * mosts[s * each + 1];
  }
  for (int c = threadIdx.x; c < p.value_width; c += kThreads) {
    float sum = 0;
    for (int s = 0; s < p.splits; ++s) {
      sum += expf(mosts[s * each] - finite(most)) * from[s * each + c];
    }
    write_row<T>(p, batch, head * p.group + row / p.queries, row % p.queries, most, total, c, sum);
  }
}

}  // namespace mytorch::cuda::decode
