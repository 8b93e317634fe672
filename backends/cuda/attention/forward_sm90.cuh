// The forward kernel of attention for compute capability 9.0a. A thread block computes tiles of
// output rows. One warpgroup loads; each of the others multiplies 64 rows. A warpgroup queues the
// scores of a block of keys together with the previous block's product of probabilities and values,
// so that its exponentials overlap with that product and with those of the other warpgroups (the
// schedule of FlashAttention-3, Shah et al., 2024).
#pragma once

#include <cmath>

#include "backends/cuda/attention/bits.cuh"
#include "backends/cuda/attention/fragments.cuh"
#include "backends/cuda/attention/hopper.cuh"

namespace mytorch::cuda::hopper {

struct Forward {
  RowsOut out;
  float* logsumexp;  // (batch, heads, queries), or null
  int heads, queries, keys;
  int group;  // query heads per key head
  // Row i sees the keys i + first <= j <= i + last.
  int first, last;
  float scale, scale_log2;  // scale * log2(e)
  Bits bits;                // of keys, per query
  float kept;               // the factor of weights that dropout keeps
  int row_tiles;
  int pairs;    // batch * heads
  int section;  // pairs of batch and head whose keys and values stay in the L2 cache together
  uint32_t* counters;  // two, 0 before and after
};

struct Range {
  int begin, end;
};

// The blocks of keys that some row of the tile sees.
template <int kRows, int kKeys>
__device__ inline Range visible_blocks(const Forward& p, int row) {
  const int last_row = min(row + kRows, p.queries) - 1;
  const int last = min(p.keys - 1, last_row + p.last);
  const int first = max(0, row + p.first);
  if (last < first) return {0, 0};
  return {first / kKeys, last / kKeys + 1};
}

struct Tile {
  int row, head, batch;
};

// Sections in order; within one, the last rows first: they see the most keys.
template <int kRows>
__device__ inline Tile tile_at(const Forward& p, int index) {
  const int per_section = p.section * p.row_tiles;
  const int section = index / per_section;
  const int within = index - section * per_section;
  const int pairs = min(p.section, p.pairs - section * p.section);
  const int tile = within / pairs;
  const int pair = section * p.section + within - tile * pairs;
  const int batch = pair / p.heads;
  return {(p.row_tiles - 1 - tile) * kRows, pair - batch * p.heads, batch};
}

// Makes the assembler keep the computation of `sum`, which is never negative, before what follows:
// a store that is never executed needs it. Otherwise the assembler moves the powers behind the wait
// for the products with which they overlap.
__device__ inline void finish_before_wait(float sum, void* unused) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p st.volatile.shared.f32 [%1], "
      "%0;\n}\n" ::"f"(sum),
      "r"(shared_address(unused))
      : "memory");
}

template <class Element, int kWidthOf, int kGroupsOf, int kKeysOf, int kStagesOf, bool kAlternateOf>
struct Shape {
  using T = Element;
  static constexpr int kWidth = kWidthOf;    // of a head
  static constexpr int kGroups = kGroupsOf;  // warpgroups that multiply
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kKeys = kKeysOf;  // per block
  static constexpr int kStages = kStagesOf;
  static constexpr bool kAlternate = kAlternateOf;  // whether warpgroups take turns
  static constexpr int kChunk = kWidth % 64 == 0 ? 64 : 32;
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kLoaderRegisters = kGroups == 3 ? 32 : 24;
  static constexpr int kRegisters = kGroups == 3 ? 160 : 240;
};

template <class S>
struct alignas(1024) Buffers {
  typename S::T query[S::kRows * S::kWidth];
  typename S::T key[S::kStages][S::kKeys * S::kWidth];
  typename S::T value[S::kStages][S::kKeys * S::kWidth];
  Barrier query_full, query_empty;
  Barrier key_full[S::kStages], key_empty[S::kStages];
  Barrier value_full[S::kStages], value_empty[S::kStages];
  Barrier tile_full[2], tile_empty[2];
  int tile[2];
  float unused;  // see finish_before_wait
};

// ---- the warpgroup that loads: one thread of it

template <class S>
__device__ void load_tiles(Buffers<S>& shared, const CUtensorMap& query, const CUtensorMap& key,
                           const CUtensorMap& value, const Forward& p) {
  constexpr uint32_t kBlockBytes = S::kKeys * S::kWidth * 2;
  const int total = p.row_tiles * p.pairs;
  Position<S::kStages> keys, values;
  Position<2> tiles;
  uint32_t query_phase = 0;
  int index = blockIdx.x;
  for (;; tiles.advance()) {
    shared.tile_empty[tiles.stage].wait(tiles.phase ^ 1);
    shared.tile[tiles.stage] = index;
    shared.tile_full[tiles.stage].arrive();
    if (index >= total) break;
    const Tile tile = tile_at<S::kRows>(p, index);
    index = gridDim.x + atomicAdd(p.counters, 1u);
    const Range blocks = visible_blocks<S::kRows, S::kKeys>(p, tile.row);
    if (blocks.begin >= blocks.end) continue;
    const int key_head = tile.head / p.group;
    const auto load_key = [&](int block) {
      shared.key_empty[keys.stage].wait(keys.phase ^ 1);
      shared.key_full[keys.stage].arrive_and_expect(kBlockBytes);
      load_tile(shared.key[keys.stage], key, shared.key_full[keys.stage], block * S::kKeys,
                key_head, tile.batch);
      keys.advance();
    };
    const auto load_value = [&](int block) {
      shared.value_empty[values.stage].wait(values.phase ^ 1);
      shared.value_full[values.stage].arrive_and_expect(kBlockBytes);
      load_tile(shared.value[values.stage], value, shared.value_full[values.stage],
                block * S::kKeys, key_head, tile.batch);
      values.advance();
    };
    shared.query_empty.wait(query_phase ^ 1);
    shared.query_full.arrive_and_expect(S::kRows * S::kWidth * 2);
    load_tile(shared.query, query, shared.query_full, tile.row, tile.head, tile.batch);
    query_phase ^= 1;
    load_key(blocks.end - 1);
#pragma unroll 1
    for (int block = blocks.end - 2; block >= blocks.begin; --block) {
      load_key(block);
      load_value(block + 1);
    }
    load_value(blocks.begin);
  }
  // The last block to finish resets the counters.
  __threadfence();
  if (atomicAdd(p.counters + 1, 1u) == gridDim.x - 1) {
    p.counters[0] = 0;
    p.counters[1] = 0;
  }
}

// ---- a warpgroup that multiplies

// What a thread holds of 64 rows: two rows, and of each the columns 8 k + column and
// 8 k + column + 1. Value 4 k + 2 r + c is column 8 k + column + c of row r.
template <class S>
struct Rows {
  float scores[S::kKeys / 2];
  uint32_t probabilities[S::kKeys / 4];
  float out[S::kWidth / 2];
  float most[2];  // of the scores seen, before the scale; may lag behind, see update()
  float sum[2];
  uint32_t bit_words[2][S::kKeys / 32];

  __device__ void multiply_scores(uint64_t query, uint64_t key) {
    constexpr int kSteps = S::kChunk / 16;
#pragma unroll
    for (int k = 0; k < S::kWidth / 16; ++k) {
      const uint32_t within = k % kSteps * 32;
      Multiply<typename S::T, S::kKeys>::rows(
          scores, descriptor_after(query, k / kSteps * (S::kRows * S::kChunk * 2) + within),
          descriptor_after(key, k / kSteps * (S::kKeys * S::kChunk * 2) + within), k != 0);
    }
  }
  __device__ void multiply_values(uint64_t value) {
#pragma unroll
    for (int k = 0; k < S::kKeys / 16; ++k) {
      Multiply<typename S::T, S::kWidth>::columns(
          out, probabilities + 4 * k, descriptor_after(value, k * 16 * S::kChunk * 2), 1);
    }
  }

  __device__ void mask(const Forward& p, int row, int key) {
    const int column = key + threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int first = row + 8 * r + p.first - column;
      const int last = min(row + 8 * r + p.last, p.keys - 1) - column;
#pragma unroll
      for (int k = 0; k < S::kKeys / 8; ++k) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          if (8 * k + c < first || 8 * k + c > last) scores[4 * k + 2 * r + c] = -INFINITY;
        }
      }
    }
  }

  // Loads the bits of a block of keys.
  __device__ void load_bits(const uint32_t* bits, int64_t stride, int row, int key, int queries) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t* const words = bits + min(row + 8 * r, queries - 1) * stride + key / 32;
#pragma unroll
      for (int i = 0; i < S::kKeys / 32; ++i) bit_words[r][i] = own_bits(__ldg(words + i));
    }
  }
  __device__ bool bit(int k, int r, int c) const {
    return bit_words[r][k / 4] >> (k % 4 * 2 + c) & 1;
  }
  __device__ void hide() {
    if (all_set(bit_words)) return;
#pragma unroll
    for (int i = 0; i < S::kKeys / 2; ++i) {
      if (!bit(i / 4, i / 2 % 2, i % 2)) scores[i] = -INFINITY;
    }
  }
  __device__ void drop() {
#pragma unroll
    for (int i = 0; i < S::kKeys / 2; ++i) {
      if (!bit(i / 4, i / 2 % 2, i % 2)) scores[i] = 0;
    }
  }

  __device__ float block_max(int r) const {
    float most = fmaxf(scores[2 * r], scores[2 * r + 1]);
#pragma unroll
    for (int k = 1; k < S::kKeys / 8; ++k) {
      most = fmaxf(most, fmaxf(scores[4 * k + 2 * r], scores[4 * k + 2 * r + 1]));
    }
    return quad_max(most);
  }

  // Replaces the scores of row r by powers, and returns the sum of this thread's.
  __device__ float take_powers(int r, float scale_log2) {
    const float shift = most[r] == -INFINITY ? 0.f : most[r] * scale_log2;
    float total = 0;
#pragma unroll
    for (int k = 0; k < S::kKeys / 8; ++k) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& score = scores[4 * k + 2 * r + c];
        score = power_of_2(fmaf(score, scale_log2, -shift));
        total += score;
      }
    }
    return total;
  }

  __device__ void start(float scale_log2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r] = block_max(r);
      sum[r] = take_powers(r, scale_log2);
    }
  }

  // Returns whether `out` must be multiplied by `factor`. The subtracted maximum may lag behind by
  // a factor of 2^8 in the powers, which saves most of these multiplications.
  __device__ bool update(float scale_log2, float (&factor)[2]) {
    bool changed = false;
    float now[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      now[r] = fmaxf(most[r], block_max(r));
      changed |= (now[r] - most[r]) * scale_log2 > 8.f;
    }
    changed = __any_sync(0xffffffffu, changed);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (changed) {
        const float shift = now[r] == -INFINITY ? 0.f : now[r] * scale_log2;
        factor[r] = power_of_2(fmaf(most[r], scale_log2, -shift));
        most[r] = now[r];
        sum[r] *= factor[r];
      }
      sum[r] += take_powers(r, scale_log2);
    }
    return changed;
  }

  __device__ void round_powers() {
#pragma unroll
    for (int i = 0; i < S::kKeys / 4; ++i) {
      probabilities[i] = pack<typename S::T>(scores[2 * i], scores[2 * i + 1]);
    }
  }

  __device__ void rescale(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < S::kWidth / 2; ++i) out[i] *= factor[i / 2 % 2];
  }
};

template <class S, BitsAre kBits>
__device__ void multiply_tiles(Buffers<S>& shared, const Forward& p) {
  const int group = threadIdx.x / 128 - 1;
  const int warp = threadIdx.x / 32 % 4;
  const int lane = threadIdx.x % 32;
  // The warpgroups take turns to start products: barrier 1 + g is the turn of warpgroup g.
  const auto await_turn = [&] {
    if constexpr (S::kAlternate) named_wait(1 + group, 256);
  };
  const auto pass_turn = [&] {
    if constexpr (S::kAlternate) named_arrive(1 + (group + 1) % S::kGroups, 256);
  };
  if (S::kAlternate && group == S::kGroups - 1) pass_turn();

  const uint64_t query = descriptor<S::kChunk>(shared.query + group * 64 * S::kChunk, 16);
  const auto key_at = [&](int stage) { return descriptor<S::kChunk>(shared.key[stage], 16); };
  const auto value_at = [&](int stage) {
    return descriptor<S::kChunk>(shared.value[stage], S::kKeys * S::kChunk * 2);
  };
  Position<S::kStages> keys, values;
  Position<2> tiles;
  uint32_t query_phase = 0;
  for (;; tiles.advance()) {
    shared.tile_full[tiles.stage].wait(tiles.phase);
    const int index = shared.tile[tiles.stage];
    if (index >= p.row_tiles * p.pairs) return;
    const Tile current = tile_at<S::kRows>(p, index);
    int first_row = current.row;
    const uint32_t* bits = nullptr;
    if constexpr (kBits != BitsAre::kNone) bits = p.bits.at(current.batch, current.head);
    const Range blocks = visible_blocks<S::kRows, S::kKeys>(p, first_row);
    first_row += 64 * group;
    Rows<S> rows;
#pragma unroll
    for (float& value : rows.out) value = 0;
    if (blocks.begin >= blocks.end) {
      rows.most[0] = rows.most[1] = -INFINITY;
      rows.sum[0] = rows.sum[1] = 0;
    } else {
      // Whether some row of the warpgroup does not see some key of the block.
      const auto is_partial = [&](int block) {
        const int key = block * S::kKeys;
        return key + S::kKeys > p.keys || key + S::kKeys - 1 > first_row + p.last ||
               key < first_row + 63 + p.first;
      };
      const auto load_bits = [&](int block) {
        if constexpr (kBits != BitsAre::kNone) {
          rows.load_bits(bits, p.bits.row, first_row + 16 * warp + lane / 4, block * S::kKeys,
                         p.queries);
        }
      };
      const auto hide = [&](int block) {
        if constexpr (kBits == BitsAre::kMask) rows.hide();
        if (is_partial(block)) rows.mask(p, first_row + 16 * warp + lane / 4, block * S::kKeys);
      };
      const auto round_powers = [&] {
        if constexpr (kBits == BitsAre::kDropout) rows.drop();
        rows.round_powers();
      };
      int block = blocks.end - 1;
      load_bits(block);
      shared.query_full.wait(query_phase);
      query_phase ^= 1;
      shared.key_full[keys.stage].wait(keys.phase);
      products_begin();
      rows.multiply_scores(query, key_at(keys.stage));
      products_commit();
      products_wait<0>();
      pin_registers(rows.scores);
      if (lane == 0) shared.key_empty[keys.stage].arrive();
      keys.advance();
      hide(block);
      rows.start(p.scale_log2);
      round_powers();

      for (--block; block >= blocks.begin; --block) {
        load_bits(block);
        shared.key_full[keys.stage].wait(keys.phase);
        await_turn();
        products_begin();
        rows.multiply_scores(query, key_at(keys.stage));
        products_commit();
        shared.value_full[values.stage].wait(values.phase);
        products_begin();
        rows.multiply_values(value_at(values.stage));
        products_commit();
        pass_turn();
        products_wait<1>();
        pin_registers(rows.scores);
        if (lane == 0) shared.key_empty[keys.stage].arrive();
        keys.advance();
        hide(block);
        float factor[2];
        const bool changed = rows.update(p.scale_log2, factor);
        finish_before_wait(rows.sum[0] + rows.sum[1], &shared.unused);
        products_wait<0>();
        pin_registers(rows.out);
        if (lane == 0) shared.value_empty[values.stage].arrive();
        values.advance();
        if (changed) rows.rescale(factor);
        round_powers();
      }
      if (lane == 0) shared.query_empty.arrive();
      shared.value_full[values.stage].wait(values.phase);
      products_begin();
      rows.multiply_values(value_at(values.stage));
      products_commit();
      products_wait<0>();
      pin_registers(rows.out);
      if (lane == 0) shared.value_empty[values.stage].arrive();
      values.advance();
    }
    // Deriving the tile again takes fewer registers than keeping it.
    const Tile tile = tile_at<S::kRows>(p, shared.tile[tiles.stage]);
    __syncwarp();
    if (lane == 0) shared.tile_empty[tiles.stage].arrive();
    const int row = tile.row + 64 * group + 16 * warp + lane / 4;
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = quad_sum(rows.sum[r]);
      const bool is_empty = rows.most[r] == -INFINITY && sum == sum;
      factor[r] = is_empty ? 0.f : (kBits == BitsAre::kDropout ? p.kept : 1.f) / sum;
      if (p.logsumexp != nullptr && lane % 4 == 0 && row + 8 * r < p.queries) {
        p.logsumexp[(static_cast<int64_t>(tile.batch) * p.heads + tile.head) * p.queries + row +
                    8 * r] = is_empty ? -INFINITY : rows.most[r] * p.scale + logf(sum);
      }
    }
    write_rows<typename S::T, S::kWidth>(p.out.at<typename S::T>(tile.batch, tile.head), p.out.row,
                                         row, p.queries, rows.out, factor);
  }
}

template <class S, BitsAre kBits>
__global__ void __launch_bounds__(S::kThreads, 1)
    attention_forward_sm90(const __grid_constant__ CUtensorMap query,
                           const __grid_constant__ CUtensorMap key,
                           const __grid_constant__ CUtensorMap value,
                           const __grid_constant__ Forward p) {
  extern __shared__ char memory[];
  auto& shared =
      *reinterpret_cast<Buffers<S>*>(memory + (1024 - shared_address(memory) % 1024) % 1024);
  if (threadIdx.x == 0) {
    prefetch_map(query);
    prefetch_map(key);
    prefetch_map(value);
    constexpr int kWarps = 4 * S::kGroups;
    shared.query_full.initialize(1);
    shared.query_empty.initialize(kWarps);
    for (int i = 0; i < S::kStages; ++i) {
      shared.key_full[i].initialize(1);
      shared.key_empty[i].initialize(kWarps);
      shared.value_full[i].initialize(1);
      shared.value_empty[i].initialize(kWarps);
    }
    for (int i = 0; i < 2; ++i) {
      shared.tile_full[i].initialize(1);
      shared.tile_empty[i].initialize(kWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<S::kLoaderRegisters>();
    if (threadIdx.x == 0) load_tiles<S>(shared, query, key, value, p);
  } else {
    take_registers<S::kRegisters>();
    multiply_tiles<S, kBits>(shared, p);
  }
}

template <class S>
constexpr size_t kSharedBytes = sizeof(Buffers<S>) + 1024;

}  // namespace mytorch::cuda::hopper
