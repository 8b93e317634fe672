// Attention of a few query rows over many keys, which lie in pages or in one tensor. The rows that
// share a key head, a row per query head and query, are computed together, so that each key is read
// once for all of them. The keys of a sequence are split among thread blocks; a second kernel
// merges the splits in order. The grid depends on shapes only, because lengths are in device
// memory: a block derives its keys from the length.
#pragma once

#include <cmath>
#include <cstdint>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/mma.cuh"
#include "backends/cuda/runtime/faults.h"

namespace mytorch::cuda::decode {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kStep = 16;  // keys that a warp multiplies at a time; splits begin at multiples
constexpr float kLog2e = 1.4426950408889634F, kLn2 = 0.6931471805599453F;

struct Call {
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
  static __device__ Part of_block(const Call& p) {
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

  __device__ Keys seen_by(const Call& p, int query) const {
    const int64_t at = place + query;
    const auto clamped = [&](int64_t j) {
      return static_cast<int>(min(max(j, int64_t{0}), int64_t{keys}));
    };
    return {p.left < 0 ? 0 : clamped(at - p.left), p.right < 0 ? keys : clamped(at + p.right + 1)};
  }
  __device__ int64_t head_of(const Call& p, int row) const {
    return int64_t{key_head} * p.group + row / p.queries;
  }
};

// What the scores of a row depend on. A row past the last sees no key.
struct Row {
  Keys seen;
  int64_t place;
  float slope;

  static __device__ Row of(const Call& p, const Part& part, int row) {
    if (row >= p.rows) return {};
    const float slope =
        p.slopes == nullptr
            ? 0.0F
            : p.slopes[part.batch * p.slope_stride[0] + part.head_of(p, row) * p.slope_stride[1]];
    return {part.seen_by(p, row % p.queries), part.place + row % p.queries, slope};
  }
  // Returns the score of key j from the product of query and key.
  __device__ float score(const Call& p, float product, int j) const {
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

  static __device__ Slot of(const Call& p, const Part& part, int j) {
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
__device__ void write_row(const Call& p, int64_t batch, int64_t head, int query, float most,
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

  __device__ void write(const Call& p, const Part& part, int first_row) const {
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
__global__ void __launch_bounds__(kThreads) merge_splits(const __grid_constant__ Call p) {
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

// ---- 16-bit types with matrix products. A warp multiplies 16 keys with 8 * kTiles rows: scores^T
// = K Q^T and out^T = V^T P^T, in both of which the keys or values are the larger factor
// (m16n8k16). Each warp copies its keys and values to a ring in shared memory, kStages steps of 16
// keys. Whole rows arrive in the background, which reads memory faster than loads of the fragments.
// Sums over columns may take them in any order, and so may the columns of the output, so that each
// thread reads packs of 16 bytes.

// Reduces over the lanes of equal lane % 4.
__device__ __forceinline__ float max_of_rows(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}
__device__ __forceinline__ float sum_of_rows(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}

// The ring of a warp. A row's packs are permuted, so that the lanes that read at once use all
// banks.
template <class T, int kWidth>
struct Ring {
  static constexpr int kPacks = kWidth / 8;  // of a row
  static constexpr int kRowsAtOnce = 32 / kPacks;
  static constexpr int kStages = kWidth == 128 ? 3 : 4;
  static constexpr int kBytes = kStages * 2 * kStep * kWidth * static_cast<int>(sizeof(T));

  T* data;

  static __device__ int key_place(int row, int pack) { return pack ^ ((row & 1) << 2); }
  static __device__ int value_place(int row, int pack) { return pack ^ ((row & 6)); }
  __device__ T* keys(int stage) const { return data + stage * (2 * kStep * kWidth); }
  __device__ T* values(int stage) const { return keys(stage) + kStep * kWidth; }
  __device__ uint4 key(int stage, int row, int pack) const {
    return *reinterpret_cast<const uint4*>(keys(stage) + row * kWidth + 8 * key_place(row, pack));
  }
  __device__ uint4 value(int stage, int row, int pack) const {
    return *reinterpret_cast<const uint4*>(values(stage) + row * kWidth +
                                           8 * value_place(row, pack));
  }
  // Starts copies of 16 keys and values, of which lane % 16 has the offsets.
  __device__ void load(const Call& p, int stage, int64_t key_offset, int64_t value_offset) const {
    const int lane = threadIdx.x % 32, pack = lane % kPacks;
#pragma unroll
    for (int first = 0; first < kStep; first += kRowsAtOnce) {
      const int row = first + lane / kPacks;
      const T* const from =
          static_cast<const T*>(p.key) + __shfl_sync(0xFFFFFFFFu, key_offset, row) + 8 * pack;
      copy_async(keys(stage) + row * kWidth + 8 * key_place(row, pack), from, false);
    }
#pragma unroll
    for (int first = 0; first < kStep; first += kRowsAtOnce) {
      const int row = first + lane / kPacks;
      const T* const from =
          static_cast<const T*>(p.value) + __shfl_sync(0xFFFFFFFFu, value_offset, row) + 8 * pack;
      copy_async(values(stage) + row * kWidth + 8 * value_place(row, pack), from, false);
    }
  }
};

// The dynamic shared memory of decode_products.
template <class T, int kWidth>
constexpr size_t kProductsShared = kWarps* Ring<T, kWidth>::kBytes;

template <class T, int kWidth, int kTiles>
__global__ void __launch_bounds__(kThreads, kWidth* kTiles <= 64 ? 3 : 2)
    decode_products(const __grid_constant__ Call p) {
  constexpr int kKeyPacks = kWidth / 32, kValuePacks = kWidth / 64;
  constexpr int kStages = Ring<T, kWidth>::kStages;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / 4, quad = lane % 4;  // names of the fragments' layouts
  const Part part = Part::of_block<8 * kTiles>(p);
  const Ring<T, kWidth> ring{
      reinterpret_cast<T*>(shared_memory() + warp * Ring<T, kWidth>::kBytes)};

  // The slot of key lane % 16 of a step. Only keys that some query sees are read.
  const auto find = [&](int step) {
    const int j = step * kStep + lane % kStep;
    return Slot::of(p, part, min(max(j, part.seen.begin), part.seen.end - 1));
  };
  const auto load = [&](const Slot& slot, int stage) {
    ring.load(p, stage, slot.offset(p.key_stride) + part.key_head * p.key_stride[2],
              slot.offset(p.value_stride) + part.key_head * p.value_stride[2]);
  };

  int step = part.own.begin / kStep + warp;
  const int end = part.own.begin < part.own.end ? (part.own.end + kStep - 1) / kStep : 0;
  Slot next;
  if (step < end) next = find(step);
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (step + stage * kWarps < end) {
      load(next, stage);
      next = find(step + (stage + 1) * kWarps);
    }
    commit_copies();
  }
  // Row `group` of each tile.
  uint4 query[kTiles][kKeyPacks];
  __shared__ Row rows[8 * kTiles];
  if (threadIdx.x < 8 * kTiles) rows[threadIdx.x] = Row::of(p, part, part.first_row + threadIdx.x);
  __syncthreads();
  // Of rows 2 quad and 2 quad + 1 of each tile: the maximum of the scores * log2(e), which may lag
  // behind, and the sum of this thread's weights.
  float most[kTiles][2], total[kTiles][2];
  // Of tile u: values c = 0 to 3 of pack h and pair e are column 64 h + 8 group + 2 e + c / 2 of
  // row 2 quad + c % 2.
  float out[kTiles][kValuePacks * 4][4];
#pragma unroll
  for (int u = 0; u < kTiles; ++u) {
    const int own = part.first_row + 8 * u + group;
    const T* const from = static_cast<const T*>(p.query) + part.batch * p.query_stride[0] +
                          part.head_of(p, own) * p.query_stride[1] +
                          own % p.queries * p.query_stride[2];
#pragma unroll
    for (int c = 0; c < kKeyPacks; ++c) {
      query[u][c] = own < p.rows ? *reinterpret_cast<const uint4*>(from + 8 * (quad + 4 * c))
                                 : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[u][r] = -INFINITY;
      total[u][r] = 0;
    }
#pragma unroll
    for (auto& values : out[u]) values[0] = values[1] = values[2] = values[3] = 0;
  }

  for (int stage = 0; step < end; step += kWarps, stage = (stage + 1) % kStages) {
    wait_for_copies<kStages - 2>();
    __syncwarp();
    float score[kTiles][4];
#pragma unroll
    for (auto& scores : score) scores[0] = scores[1] = scores[2] = scores[3] = 0;
#pragma unroll
    for (int c = 0; c < kKeyPacks; ++c) {
      const uint4 low = ring.key(stage, group, quad + 4 * c);
      const uint4 high = ring.key(stage, group + 8, quad + 4 * c);
#pragma unroll
      for (int u = 0; u < kTiles; ++u) {
        multiply<T>(score[u], low.x, high.x, low.y, high.y, query[u][c].x, query[u][c].y);
        multiply<T>(score[u], low.z, high.z, low.w, high.w, query[u][c].z, query[u][c].w);
      }
    }
    // Into the stage before this one, which all lanes have read.
    if (const int ahead = step + (kStages - 1) * kWarps; ahead < end) {
      load(next, (stage + kStages - 1) % kStages);
      next = find(ahead + kWarps);
    }
    commit_copies();

    uint32_t weights[kTiles][2];
#pragma unroll
    for (int u = 0; u < kTiles; ++u) {
      bool rises = false;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int j = step * kStep + group + 8 * (c / 2);
        score[u][c] = rows[8 * u + 2 * quad + c % 2].score(p, score[u][c], j) * kLog2e;
        rises |= score[u][c] > most[u][c % 2] + 8.0F;
      }
      if (__any_sync(0xFFFFFFFFu, rises)) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float now = fmaxf(most[u][r], max_of_rows(fmaxf(score[u][r], score[u][r + 2])));
          const float factor = power_of_2(most[u][r] - finite(now));
          most[u][r] = now;
          total[u][r] *= factor;
#pragma unroll
          for (auto& values : out[u]) {
            values[r] *= factor;
            values[r + 2] *= factor;
          }
        }
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        score[u][c] = power_of_2(score[u][c] - finite(most[u][c % 2]));
        total[u][c % 2] += score[u][c];
      }
      weights[u][0] = transposed(pack<T>(score[u][0], score[u][1]));
      weights[u][1] = transposed(pack<T>(score[u][2], score[u][3]));
    }

#pragma unroll
    for (int h = 0; h < kValuePacks; ++h) {
      uint4 value[4];  // of keys 2 quad, 2 quad + 1, 2 quad + 8, 2 quad + 9
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        value[i] = ring.value(stage, 2 * quad + i % 2 + i / 2 * 8, group + 8 * h);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const auto part_of = [&](int i) {
          return e == 0 ? value[i].x : e == 1 ? value[i].y : e == 2 ? value[i].z : value[i].w;
        };
        const uint32_t low0 = __byte_perm(part_of(0), part_of(1), 0x5410);
        const uint32_t high0 = __byte_perm(part_of(0), part_of(1), 0x7632);
        const uint32_t low1 = __byte_perm(part_of(2), part_of(3), 0x5410);
        const uint32_t high1 = __byte_perm(part_of(2), part_of(3), 0x7632);
#pragma unroll
        for (int u = 0; u < kTiles; ++u) {
          multiply<T>(out[u][4 * h + e], low0, high0, low1, high1, weights[u][0], weights[u][1]);
        }
      }
    }
    __syncwarp();
  }

  // The sums replace the rings, of which every copy has ended.
  wait_for_copies<0>();
  using Sums = Merge<T, kWarps, 8, kWidth>;
  static_assert(sizeof(Sums) <= kProductsShared<T, kWidth>);
  auto& merge = *reinterpret_cast<Sums*>(shared_memory());
#pragma unroll
  for (int u = 0; u < kTiles; ++u) {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = sum_of_rows(total[u][r]);
      if (group == 0) {
        merge.mosts[warp][2 * quad + r] = most[u][r] * kLn2;
        merge.totals[warp][2 * quad + r] = sum;
      }
    }
#pragma unroll
    for (int i = 0; i < kValuePacks * 4; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int column = 64 * (i / 4) + 8 * group + 2 * (i % 4) + c / 2;
        merge.sums[warp][2 * quad + c % 2][column] = out[u][i][c];
      }
    }
    __syncthreads();
    merge.write(p, part, part.first_row + 8 * u);
  }
}

// ---- any type, width and strides. kLanes threads hold the columns of a key, kPerLane each.

constexpr int kPerLane = 8;

template <class T, bool kWhole>
__device__ __forceinline__ void load_columns(const T* row, int64_t step, int first, int width,
                                             T (&to)[kPerLane]) {
  if constexpr (kWhole) {
    constexpr int kEach = 16 / sizeof(T);
#pragma unroll
    for (int c = 0; c < kPerLane; c += kEach) {
      const uint4 x = first + c < width ? load_once(row + first + c) : uint4{0, 0, 0, 0};
      *reinterpret_cast<uint4*>(&to[c]) = x;
    }
  } else {
#pragma unroll
    for (int c = 0; c < kPerLane; ++c) {
      to[c] = first + c < width ? row[(first + c) * step] : convert<T>(0.0F);
    }
  }
}

template <class T, int kLanes, int kRows, bool kWhole>
__global__ void __launch_bounds__(kThreads) decode_columns(const __grid_constant__ Call p) {
  constexpr int kGroups = kThreads / kLanes;
  constexpr int kAtOnce = 2;  // keys that a group of threads loads at a time
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes, first = lane * kPerLane;
  const Part part = Part::of_block<kRows>(p);
  float query[kRows][kPerLane], out[kRows][kPerLane], most[kRows], total[kRows];
  __shared__ Row rows[kRows];
  if (threadIdx.x < kRows) rows[threadIdx.x] = Row::of(p, part, part.first_row + threadIdx.x);
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int own = min(part.first_row + r, p.rows - 1);
    const T* const from = static_cast<const T*>(p.query) + part.batch * p.query_stride[0] +
                          part.head_of(p, own) * p.query_stride[1] +
                          own % p.queries * p.query_stride[2];
#pragma unroll
    for (int c = 0; c < kPerLane; ++c) {
      query[r][c] = first + c < p.width ? widen(from[(first + c) * p.query_stride[3]]) : 0.0F;
      out[r][c] = 0;
    }
    most[r] = -INFINITY;
    total[r] = 0;
  }

  alignas(16) T key[kAtOnce][kPerLane], value[kAtOnce][kPerLane];
  Slot next[kAtOnce];
  const auto find = [&](int from) {
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
      const int j = from + a * kGroups + group;
      next[a] = Slot::of(p, part, min(max(j, part.seen.begin), part.seen.end - 1));
    }
  };
  const auto load = [&](auto& to, const void* data, const int64_t(&stride)[4], int width) {
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
      load_columns<T, kWhole>(
          static_cast<const T*>(data) + next[a].offset(stride) + part.key_head * stride[2],
          stride[3], first, width, to[a]);
    }
  };
  int from = part.own.begin;
  if (from < part.own.end) {
    find(from);
    load(key, p.key, p.key_stride, p.width);
    load(value, p.value, p.value_stride, p.value_width);
    find(from + kGroups * kAtOnce);
  }
  for (; from < part.own.end; from += kGroups * kAtOnce) {
    const bool more = from + kGroups * kAtOnce < part.own.end;
    float score[kRows][kAtOnce];
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) score[r][a] = 0;
#pragma unroll
      for (int c = 0; c < kPerLane; ++c) {
        const float k = widen(key[a][c]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) score[r][a] = fmaf(query[r][c], k, score[r][a]);
      }
    }
    if (more) load(key, p.key, p.key_stride, p.width);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float highest = most[r];
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
#pragma unroll
        for (int step = kLanes / 2; step > 0; step /= 2) {
          score[r][a] += __shfl_xor_sync(0xFFFFFFFFu, score[r][a], step);
        }
        const int j = from + a * kGroups + group;
        score[r][a] = j < part.own.end ? rows[r].score(p, score[r][a], j) : -INFINITY;
        highest = fmaxf(highest, score[r][a]);
      }
      if (highest > most[r]) {
        const float factor = expf(most[r] - finite(highest));
        most[r] = highest;
        total[r] *= factor;
#pragma unroll
        for (int c = 0; c < kPerLane; ++c) out[r][c] *= factor;
      }
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
        score[r][a] = expf(score[r][a] - finite(most[r]));
        total[r] += score[r][a];
      }
    }
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
#pragma unroll
      for (int c = 0; c < kPerLane; ++c) {
        const float v = widen(value[a][c]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) out[r][c] = fmaf(score[r][a], v, out[r][c]);
      }
    }
    if (more) {
      load(value, p.value, p.value_stride, p.value_width);
      find(from + 2 * kGroups * kAtOnce);
    }
  }

  __shared__ Merge<T, kGroups, 1, kLanes * kPerLane> merge;
  // Row 0 is written, and the others move up: unrolled, the code for all rows would be longer than
  // the rest of the kernel.
#pragma unroll 1
  for (int row = 0; row < kRows; ++row) {
    __syncthreads();
    merge.mosts[group][0] = most[0];
    merge.totals[group][0] = total[0];
#pragma unroll
    for (int c = 0; c < kPerLane; ++c) merge.sums[group][0][first + c] = out[0][c];
    __syncthreads();
    merge.write(p, part, part.first_row + row);
#pragma unroll
    for (int r = 1; r < kRows; ++r) {
      most[r - 1] = most[r];
      total[r - 1] = total[r];
#pragma unroll
      for (int c = 0; c < kPerLane; ++c) out[r - 1][c] = out[r][c];
    }
  }
}

}  // namespace mytorch::cuda::decode
