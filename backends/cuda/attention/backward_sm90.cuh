// The gradient of attention for compute capability 9.0a. A thread block takes blocks of 128 keys.
// Two warpgroups hold the gradients of 64 keys and values each, in registers, and go through the
// tiles of queries that see them: they compute P^T and dS^T by products whose rows are keys, so
// that both are operands of the next products as they lie in registers. dS goes through shared
// memory and gives the block's part of the gradient of the queries. Thread blocks that have parts
// of the same tile add them in global memory in the order of their keys, each in its turn, so that
// the result does not depend on timing. The third warpgroup loads and adds.
#pragma once

#include <cmath>

#include "backends/cuda/attention/bits.cuh"
#include "backends/cuda/attention/fragments.cuh"
#include "backends/cuda/attention/hopper.cuh"

namespace mytorch::cuda::hopper {

struct Backward {
  RowsOut grad_query, grad_key, grad_value;  // null: not wanted
  const float* rows;  // (query heads, row tiles, 2, rows of a tile): see prepare_backward
  float* sums;        // (query heads, row tiles, rows of a tile * width), see finish_backward
  uint32_t* turns;    // (query heads, row tiles): how many parts of a sum there are
  int heads, queries, keys;
  int group;  // query heads per key head
  // Row i sees the keys i + first <= j <= i + last.
  int first, last;
  float scale, scale_log2;  // scale * log2(e)
  Bits bits;                // of queries, per key
  float kept;               // the factor of weights that dropout keeps
  int row_tiles, key_tiles;
  int pairs;           // batch * key heads
  int section;         // pairs of batch and key head whose blocks of keys alternate, see Loader
  uint32_t* counters;  // two, 0 before and after
};

// The tiles from `begin` to `end`.
struct TileRange {
  int begin, end;
};
// The tiles of queries that see some of the keys, and of keys that are seen by some of the queries.
template <int kRows, int kKeys>
__device__ inline TileRange row_tiles_of(const Backward& p, int key) {
  const int begin = max(0, key - p.last);
  const int end = min(p.queries - 1, min(key + kKeys, p.keys) - 1 - p.first);
  if (end < begin) return {0, 0};
  return {begin / kRows, end / kRows + 1};
}
template <int kRows, int kKeys>
__device__ inline TileRange key_tiles_of(const Backward& p, int row) {
  const int begin = max(0, row + p.first);
  const int end = min(p.keys - 1, min(row + kRows, p.queries) - 1 + p.last);
  if (end < begin) return {0, 0};
  return {begin / kKeys, end / kKeys + 1};
}

template <class Element, int kWidthOf, int kRowsOf, int kStagesOf, int kSumsOf>
struct BackwardShape {
  using T = Element;
  static constexpr int kWidth = kWidthOf;  // of a head
  static constexpr int kRows = kRowsOf;    // queries of a tile
  static constexpr int kKeys = 128;
  static constexpr int kStages = kStagesOf;  // tiles of queries in shared memory
  static constexpr int kSums = kSumsOf;      // parts of their gradients in shared memory
  static constexpr int kChunk = kWidth % 64 == 0 ? 64 : 32;
  static constexpr int kThreads = 3 * 128;
  static constexpr int kRegisters = 240, kLoaderRegisters = 24;
  // Each warpgroup computes the gradient of 64 queries of a tile of 128. Of a tile of 64, the
  // second one computes the columns from 64 on.
  static constexpr bool kSplitsRows = kRows == 128;
  static constexpr int kColumns = kSplitsRows ? kWidth : 64;  // of the first
  static constexpr int kColumns2 = kSplitsRows ? kWidth : kWidth - kColumns;
};

constexpr int kAdders = 3;  // threads, see add_parts
// The loader is ahead of the threads that add by as many steps as fit in shared memory, and some.
constexpr int kTurns = 8;

// What a step is about: one tile of queries and one block of keys.
struct Step {
  int row, key;     // the first ones; row -1 ends the work
  int head, batch;  // query head
  bool final;       // of the steps with these keys
};

// Where and when a part of the gradient of queries is added; place -1 ends the work.
struct Turn {
  int64_t tile;
  int place;
};

// What will be loaded next. One thread has it; shared memory saves its registers.
struct NextStep {
  int key, key_head, batch;
  int member;             // of the group of query heads
  int count, begin, end;  // steps left, tiles of queries
  bool first;
};

template <class S>
struct alignas(1024) BackwardBuffers {
  typename S::T key[S::kKeys * S::kWidth];
  typename S::T value[S::kKeys * S::kWidth];
  typename S::T query[S::kStages][S::kRows * S::kWidth];
  typename S::T grad[S::kStages][S::kRows * S::kWidth];  // of the output
  // dS^T: chunks of 64 queries, each with all keys.
  typename S::T slope[2][S::kRows * S::kKeys];
  float part[S::kSums][S::kRows * S::kWidth];
  float rows[S::kStages][2 * S::kRows];
  Barrier keys_full, keys_empty;
  Barrier full[S::kStages], empty[S::kStages];
  Barrier part_full[kAdders], part_empty[S::kSums];
  Barrier turn_full[kTurns];
  Step step[S::kStages];
  Turn turn[kTurns];
  NextStep next;
};

// ---- loads, by one thread. Blocks of keys come in ascending order, and each goes through its
// queries from the last one down. So a tile of queries meets its blocks of keys in the order in
// which they start, which is the order of turns: a thread block waits only for work that started
// before its own. Within a section, all heads come before the next keys, so that few thread blocks
// work on a head at a time: additions take their time, and the next block of keys would wait for
// them. With the heads of a section grows what the L2 cache has to hold.

template <class S>
struct Loader {
  BackwardBuffers<S>& shared;
  const CUtensorMap &query, &key, &value, &grad;
  const Backward& p;

  // Moves to the next block of keys that some query sees.
  __device__ bool take_keys() const {
    NextStep& next = shared.next;
    const auto total = static_cast<uint32_t>(p.key_tiles) * p.pairs;
    for (;;) {
      // Not ahead of time: others wait for what a thread block has taken.
      const uint32_t index = atomicAdd(p.counters, 1u);
      if (index >= total) return false;
      const uint32_t per_section = static_cast<uint32_t>(p.section) * p.key_tiles;
      const int section = static_cast<int>(index / per_section);
      const int within = static_cast<int>(index - section * per_section);
      const int pairs = min(p.section, p.pairs - section * p.section);
      const int tile = within / pairs;
      const int pair = section * p.section + within - tile * pairs;
      const TileRange rows = row_tiles_of<S::kRows, S::kKeys>(p, tile * S::kKeys);
      if (rows.begin >= rows.end) continue;
      const int key_heads = p.heads / p.group;
      next.batch = pair / key_heads;
      next.key_head = pair - next.batch * key_heads;
      next.key = tile * S::kKeys;
      next.begin = rows.begin;
      next.end = rows.end;
      next.count = rows.end - rows.begin;
      next.member = 0;
      next.first = true;
      return true;
    }
  }

  __device__ void load_keys() const {
    const NextStep& next = shared.next;
    constexpr uint32_t kBytes = S::kKeys * S::kWidth * 2;
    shared.keys_full.arrive_and_expect(2 * kBytes);
    load_tile(shared.key, key, shared.keys_full, next.key, next.key_head, next.batch);
    load_tile(shared.value, value, shared.keys_full, next.key, next.key_head, next.batch);
  }

  __device__ void announce(Position<kTurns>& turns, const Turn& turn) const {
    shared.turn[turns.stage] = turn;
    shared.turn_full[turns.stage].arrive();
    turns.advance();
  }

  // Loads what the next step needs but its keys. Returns false after the last one.
  __device__ bool load_rows(int stage, Position<kTurns>& turns) const {
    NextStep& next = shared.next;
    if (next.count == 0) {
      ++next.member;
      next.count = next.end - next.begin;
      if (next.member >= p.group && !take_keys()) {
        shared.step[stage].row = -1;
        shared.full[stage].arrive();
        for (int i = 0; i < kAdders; ++i) announce(turns, {0, -1});
        return false;
      }
    }
    const int tile = next.begin + --next.count;
    const int row = tile * S::kRows, head = next.key_head * p.group + next.member;
    const int64_t at = (static_cast<int64_t>(next.batch) * p.heads + head) * p.row_tiles + tile;
    announce(turns, {at, next.key / S::kKeys - key_tiles_of<S::kRows, S::kKeys>(p, row).begin});
    Step& step = shared.step[stage];
    step.row = row;
    step.key = next.key;
    step.head = head;
    step.batch = next.batch;
    step.final = next.count == 0 && next.member == p.group - 1;
    constexpr uint32_t kTileBytes = S::kRows * S::kWidth * 2, kRowsBytes = 2 * S::kRows * 4;
    Barrier& full = shared.full[stage];
    full.arrive_and_expect(2 * kTileBytes + kRowsBytes);
    load_tile(shared.query[stage], query, full, row, head, next.batch);
    load_tile(shared.grad[stage], grad, full, row, head, next.batch);
    load_bytes(shared.rows[stage], p.rows + at * (2 * S::kRows), kRowsBytes, full);
    return true;
  }

  __device__ void run() const {
    NextStep& next = shared.next;
    next.count = next.begin = next.end = 0;
    next.member = p.group;
    next.first = false;
    Position<S::kStages> at;
    Position<kTurns> turns;
    uint32_t keys_phase = 0;
    for (;; at.advance()) {
      shared.empty[at.stage].wait(at.phase ^ 1);
      if (!load_rows(at.stage, turns)) break;
      if (next.first) {
        next.first = false;
        shared.keys_empty.wait(keys_phase ^ 1);
        keys_phase ^= 1;
        load_keys();
      }
    }
    finish();
  }

  // The last block to finish resets the counters.
  __device__ void finish() const {
    __threadfence();
    if (atomicAdd(p.counters + 1, 1u) == gridDim.x - 1) {
      p.counters[0] = 0;
      p.counters[1] = 0;
    }
  }
};

// ---- a warpgroup with the gradients of 64 keys

template <class S>
struct Keys {
  using T = typename S::T;
  float weights[S::kRows / 2];  // scores, then P^T
  float slopes[S::kRows / 2];   // dP^T
  uint32_t rounded_weights[S::kRows / 4], rounded_slopes[S::kRows / 4];
  uint32_t bit_words[2][S::kRows / 32];
  float part[S::kColumns / 2];  // of the gradient of queries
  float to_key[S::kWidth / 2], to_value[S::kWidth / 2];

  // result = A B^T, with A the warpgroup's rows of a block of keys.
  __device__ static void multiply_rows(float (&result)[S::kRows / 2], uint64_t a, uint64_t b) {
    constexpr int kSteps = S::kChunk / 16;
#pragma unroll
    for (int k = 0; k < S::kWidth / 16; ++k) {
      const uint32_t within = k % kSteps * 32;
      Multiply<T, S::kRows>::rows(
          result, descriptor_after(a, k / kSteps * (S::kKeys * S::kChunk * 2) + within),
          descriptor_after(b, k / kSteps * (S::kRows * S::kChunk * 2) + within), k != 0);
    }
  }
  // sum += X B.
  __device__ static void add_products(float (&sum)[S::kWidth / 2],
                                      const uint32_t (&x)[S::kRows / 4], uint64_t b) {
#pragma unroll
    for (int k = 0; k < S::kRows / 16; ++k) {
      Multiply<T, S::kWidth>::columns(sum, x + 4 * k, descriptor_after(b, k * 16 * S::kChunk * 2),
                                      1);
    }
  }

  // Calls f(i) for the elements of queries that the keys `key` and `key + 8` do not see.
  template <class F>
  __device__ static void for_hidden(const Backward& p, int row, int key, F&& f) {
    const int column = row + threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int j = key + 8 * r;
      const int first = j - p.last - column;
      const int last = j >= p.keys ? -1 : min(j - p.first, p.queries - 1) - column;
#pragma unroll
      for (int k = 0; k < S::kRows / 8; ++k) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          if (8 * k + c < first || 8 * k + c > last) f(4 * k + 2 * r + c);
        }
      }
    }
  }

  __device__ void take_powers(const float* shifts, float scale_log2) {
#pragma unroll
    for (int k = 0; k < S::kRows / 8; ++k) {
      const float2 shift = *reinterpret_cast<const float2*>(shifts + 8 * k + threadIdx.x % 4 * 2);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float* const x = weights + 4 * k + 2 * r;
        x[0] = power_of_2(fmaf(x[0], scale_log2, -shift.x));
        x[1] = power_of_2(fmaf(x[1], scale_log2, -shift.y));
      }
    }
  }
  // Loads the bits of a tile of queries.
  __device__ void load_bits(const uint32_t* bits, int64_t stride, int row, int key, int last_key) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t* const words = bits + min(key + 8 * r, last_key) * stride + row / 32;
#pragma unroll
      for (int i = 0; i < S::kRows / 32; ++i) bit_words[r][i] = own_bits(__ldg(words + i));
    }
  }
  __device__ bool bit(int k, int r, int c) const {
    return bit_words[r][k / 4] >> (k % 4 * 2 + c) & 1;
  }
  __device__ void hide() {
#pragma unroll
    for (int i = 0; i < S::kRows / 2; ++i) {
      if (!bit(i / 4, i / 2 % 2, i % 2)) weights[i] = -INFINITY;
    }
  }

  template <BitsAre kBits>
  __device__ void round_weights() {
#pragma unroll
    for (int i = 0; i < S::kRows / 4; ++i) {
      float left = weights[2 * i], right = weights[2 * i + 1];
      if constexpr (kBits == BitsAre::kDropout) {
        left = bit(i / 2, i % 2, 0) ? left : 0.f;
        right = bit(i / 2, i % 2, 1) ? right : 0.f;
      }
      rounded_weights[i] = pack<T>(left, right);
    }
  }

  template <BitsAre kBits>
  __device__ void take_slopes(const float* deltas, float kept) {
#pragma unroll
    for (int k = 0; k < S::kRows / 8; ++k) {
      const float2 delta = *reinterpret_cast<const float2*>(deltas + 8 * k + threadIdx.x % 4 * 2);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int at = 4 * k + 2 * r;
        float left = slopes[at], right = slopes[at + 1];
        if constexpr (kBits == BitsAre::kDropout) {
          left = bit(k, r, 0) ? left * kept : 0.f;
          right = bit(k, r, 1) ? right * kept : 0.f;
        }
        rounded_slopes[at / 2] =
            pack<T>(weights[at] * (left - delta.x), weights[at + 1] * (right - delta.y));
      }
    }
  }

  // part = dS K, for kColumns columns of the keys.
  template <int kColumns>
  __device__ void multiply_slopes(uint64_t slopes_at, uint64_t keys_at) {
    auto& to = reinterpret_cast<float(&)[kColumns / 2]>(part);
#pragma unroll
    for (int k = 0; k < S::kKeys / 16; ++k) {
      Multiply<T, kColumns>::outer(to, descriptor_after(slopes_at, k * (16 * 64 * 2)),
                                   descriptor_after(keys_at, k * 16 * S::kChunk * 2), k != 0);
    }
  }
  template <int kColumns>
  __device__ void store_part(float* to) {
    pin_registers(part);
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
      *reinterpret_cast<float4*>(to + (i * 128 + threadIdx.x % 128) * 4) =
          make_float4(part[4 * i], part[4 * i + 1], part[4 * i + 2], part[4 * i + 3]);
    }
  }

  // Stores this warp's 16 rows of dS^T.
  __device__ void store_slopes(T* to, int warp_row) const {
    const int lane = threadIdx.x % 32;
    const int row = warp_row + lane % 16;
#pragma unroll
    for (int k = 0; k < S::kRows / 16; ++k) {
      const int part = (k % 4 * 2 + lane / 16) ^ row % 8;  // of 16 bytes, swizzled
      store_matrices(to + k / 4 * (64 * S::kKeys) + row * 64 + part * 8, rounded_slopes + 4 * k);
    }
  }
};

template <class S, BitsAre kBits>
__device__ void differentiate(BackwardBuffers<S>& shared, const Backward& p) {
  using T = typename S::T;
  // The same for all threads of a warp, which the compiler does not see otherwise.
  const int warps = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const int group = warps / 4;
  const int warp = warps % 4;
  const int lane = threadIdx.x % 32;
  const uint64_t key = descriptor<S::kChunk>(shared.key + group * 64 * S::kChunk, 16);
  const uint64_t value = descriptor<S::kChunk>(shared.value + group * 64 * S::kChunk, 16);
  constexpr uint32_t kPart = S::kRows * S::kChunk * 2;  // bytes of a chunk of queries
  const auto together = [] { named_wait(1, 256); };
  // The operands and the place of this warpgroup's part.
  const uint64_t part_keys = descriptor<S::kChunk>(
      shared.key + (S::kSplitsRows ? 0 : group * 64 * S::kKeys), S::kKeys * S::kChunk * 2);
  const int part_rows = S::kSplitsRows ? group * 64 * S::kKeys : 0;  // of dS
  const int part_at = group * S::kColumns * 64;
  Position<S::kStages> at;
  Position<S::kSums> part;
  Position<kAdders> adder;
  int buffer = 0;  // of dS
  uint32_t keys_phase = 0;
  int own_key, head, batch;
  for (;;) {
    shared.full[at.stage].wait(at.phase);
    if (shared.step[at.stage].row < 0) return;
    shared.keys_full.wait(keys_phase);
    keys_phase ^= 1;
    Keys<S> keys;
#pragma unroll
    for (int i = 0; i < S::kWidth / 2; ++i) keys.to_key[i] = keys.to_value[i] = 0;
    const auto multiply_scores = [&] {
      products_begin();
      keys.multiply_rows(keys.weights, key, descriptor<S::kChunk>(shared.query[at.stage], kPart));
      products_commit();
      // The bits arrive while the previous products run.
      if constexpr (kBits != BitsAre::kNone) {
        const Step& step = shared.step[at.stage];
        keys.load_bits(p.bits.at(step.batch, step.head), p.bits.row, step.row,
                       step.key + group * 64 + 16 * warp + lane / 4, p.keys - 1);
      }
    };
    multiply_scores();
    for (;;) {
      products_begin();
      keys.multiply_rows(keys.slopes, value, descriptor<S::kChunk>(shared.grad[at.stage], kPart));
      products_commit();
      const Step& step = shared.step[at.stage];
      const int row = step.row;
      const int block = step.key + group * 64;
      const bool final = step.final;
      // Whether some query of the tile does not see some key of the warpgroup.
      const bool is_partial = block + 64 > p.keys || row + S::kRows > p.queries ||
                              block + 63 > row + p.last || block < row + S::kRows - 1 + p.first;
      const int own = block + 16 * warp + lane / 4;
      products_wait<1>();
      pin_registers(keys.weights);
      if constexpr (kBits == BitsAre::kMask) keys.hide();
      if (is_partial) {
        keys.for_hidden(p, row, own, [&](int i) { keys.weights[i] = -INFINITY; });
      }
      keys.take_powers(shared.rows[at.stage], p.scale_log2);
      products_wait<0>();
      pin_registers(keys.slopes);
      if (is_partial) keys.for_hidden(p, row, own, [&](int i) { keys.slopes[i] = 0; });
      keys.template take_slopes<kBits>(shared.rows[at.stage] + S::kRows, p.kept);
      keys.template round_weights<kBits>();
      // The other warpgroup has read the previous dS of this buffer: it has waited for its part
      // before it came to the last barrier.
      keys.store_slopes(shared.slope[buffer], group * 64 + 16 * warp);
      publish_stores();
      products_begin();
      keys.add_products(keys.to_value, keys.rounded_weights,
                        descriptor<S::kChunk>(shared.grad[at.stage], kPart));
      products_commit();
      together();
      const uint64_t slopes = descriptor<64>(shared.slope[buffer] + part_rows, 16);
      buffer ^= 1;
      products_begin();
      if (S::kColumns == S::kColumns2 || group == 0) {
        keys.template multiply_slopes<S::kColumns>(slopes, part_keys);
      } else if constexpr (S::kColumns2 > 0) {
        keys.template multiply_slopes<S::kColumns2>(slopes, part_keys);
      }
      products_commit();
      keys.add_products(keys.to_key, keys.rounded_slopes,
                        descriptor<S::kChunk>(shared.query[at.stage], kPart));
      products_commit();
      products_wait<1>();
      shared.part_empty[part.stage].wait(part.phase ^ 1);
      float* const to = shared.part[part.stage] + part_at;
      if (S::kColumns == S::kColumns2 || group == 0) {
        keys.template store_part<S::kColumns>(to);
      } else if constexpr (S::kColumns2 > 0) {
        keys.template store_part<S::kColumns2>(to);
      }
      publish_stores();
      __syncwarp();
      if (lane == 0) shared.part_full[adder.stage].arrive();
      part.advance();
      adder.advance();
      Barrier& empty = shared.empty[at.stage];
      if (final) {
        head = step.head;
        batch = step.batch;
        own_key = own;
        __syncwarp();
        at.advance();
        products_wait<0>();
        if (lane == 0) {
          empty.arrive();
          shared.keys_empty.arrive();
        }
        break;
      }
      at.advance();
      shared.full[at.stage].wait(at.phase);
      multiply_scores();
      products_wait<1>();
      if (lane == 0) empty.arrive();
    }
    pin_registers(keys.to_key);
    pin_registers(keys.to_value);
    const auto write = [&](const RowsOut& out, const float(&sums)[S::kWidth / 2], float factor) {
      if (out.data == nullptr) return;
      write_rows<T, S::kWidth>(out.at<T>(batch, head / p.group), out.row, own_key, p.keys, sums,
                               {factor, factor});
    };
    write(p.grad_value, keys.to_value, kBits == BitsAre::kDropout ? p.kept : 1.f);
    write(p.grad_key, keys.to_key, p.scale);
  }
}

// ---- threads that add parts of the gradient of queries, in turns: the first one of a tile stores.
// While one awaits its turn or the end of its addition, the next one has the next part.

template <class S>
__device__ void add_parts(BackwardBuffers<S>& shared, const Backward& p, int adder) {
  constexpr uint32_t kBytes = S::kRows * S::kWidth * 4;
  for (int i = adder;; i += kAdders) {
    shared.turn_full[i % kTurns].wait(i / kTurns % 2);
    const Turn turn = shared.turn[i % kTurns];
    if (turn.place < 0) return;
    if (turn.place > 0) await_turn(p.turns + turn.tile, static_cast<uint32_t>(turn.place));
    publish_turn();
    shared.part_full[adder].wait(i / kAdders % 2);
    const int stage = i % S::kSums;
    float* const to = p.sums + turn.tile * (S::kRows * S::kWidth);
    if (turn.place > 0) {
      add_bytes(to, shared.part[stage], kBytes);
    } else {
      store_bytes(to, shared.part[stage], kBytes);
    }
    bytes_commit();
    bytes_wait_read();
    shared.part_empty[stage].arrive();
    bytes_wait();
    publish_turn();
    pass_turn(p.turns + turn.tile);
  }
}

template <class S, BitsAre kBits>
__global__ void __launch_bounds__(S::kThreads, 1)
    attention_backward_sm90(const __grid_constant__ CUtensorMap query,
                            const __grid_constant__ CUtensorMap key,
                            const __grid_constant__ CUtensorMap value,
                            const __grid_constant__ CUtensorMap grad,
                            const __grid_constant__ Backward p) {
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<BackwardBuffers<S>*>(
      memory + (1024 - shared_address(memory) % 1024) % 1024);
  if (threadIdx.x == 0) {
    prefetch_map(query);
    prefetch_map(key);
    prefetch_map(value);
    prefetch_map(grad);
    constexpr int kWarps = 8;  // that multiply
    shared.keys_full.initialize(1);
    shared.keys_empty.initialize(kWarps);
    for (int i = 0; i < S::kStages; ++i) {
      shared.full[i].initialize(1);
      shared.empty[i].initialize(kWarps);
    }
    for (auto& full : shared.part_full) full.initialize(kWarps);
    for (auto& empty : shared.part_empty) empty.initialize(1);
    for (auto& full : shared.turn_full) full.initialize(1);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 256) {
    take_registers<S::kRegisters>();
    differentiate<S, kBits>(shared, p);
  } else {
    give_registers<S::kLoaderRegisters>();
    const int warp = threadIdx.x / 32 - 8;
    if (threadIdx.x % 32 != 0) return;
    if (warp == 0) {
      Loader<S>{shared, query, key, value, grad, p}.run();
    } else {
      add_parts<S>(shared, p, warp - 1);
    }
  }
}

template <class S>
constexpr size_t kBackwardShared = sizeof(BackwardBuffers<S>) + 1024;  // to align

// ---- what precedes

struct RowsIn {
  const void* data;
  int64_t batch, head, row;

  template <class T>
  __device__ const T* at(int64_t b, int64_t h) const {
    return static_cast<const T*>(data) + b * batch + h * head;
  }
};

struct Prepare {
  RowsIn output, grad_output;
  const float* logsumexp;       // (batch, heads, queries)
  const float* grad_logsumexp;  // or null
  int64_t grad_batch, grad_head, grad_row;
  float* rows;
};

// Sets 16 bytes of `count` rows of the width to 0.
template <class T, int kWidth>
__device__ void clear_rows(const RowsOut& x, int b, int h, int row, int count, int rows) {
  if (x.data == nullptr) return;
  for (int i = threadIdx.x; i < count * (kWidth / 8); i += blockDim.x) {
    const int at = row + i / (kWidth / 8);
    if (at >= rows) return;
    *reinterpret_cast<uint4*>(x.at<T>(b, h) + at * x.row + i % (kWidth / 8) * 8) =
        make_uint4(0, 0, 0, 0);
  }
}

// For each row, the logarithm of its sum times log2(e), or infinity if it sees no key, and
// sum(dO O) - dLogsumexp; rows are padded to whole tiles. Resets the turns, and clears the
// gradients that no step writes. One thread block per tile of queries, and then, if some keys are
// seen by no query, one per block of keys.
template <class S>
__global__ void __launch_bounds__(256)
    prepare_backward(const __grid_constant__ Backward p, const __grid_constant__ Prepare q) {
  using T = typename S::T;
  constexpr int kLanes = S::kWidth <= 32 ? 4 : S::kWidth <= 64 ? 8 : 16;  // of a row
  const int pairs = p.pairs * p.group;
  if (blockIdx.x >= static_cast<unsigned>(pairs) * p.row_tiles) {
    const int block = static_cast<int>(blockIdx.x - static_cast<unsigned>(pairs) * p.row_tiles);
    const int key = block % p.key_tiles * S::kKeys, pair = block / p.key_tiles;
    const TileRange seen = row_tiles_of<S::kRows, S::kKeys>(p, key);
    if (seen.begin < seen.end) return;
    const int key_heads = p.heads / p.group;
    clear_rows<T, S::kWidth>(p.grad_key, pair / key_heads, pair % key_heads, key, S::kKeys, p.keys);
    clear_rows<T, S::kWidth>(p.grad_value, pair / key_heads, pair % key_heads, key, S::kKeys,
                             p.keys);
    return;
  }
  const int tile = static_cast<int>(blockIdx.x) % p.row_tiles;
  const int pair = static_cast<int>(blockIdx.x) / p.row_tiles;
  const int b = pair / p.heads, h = pair % p.heads, row = tile * S::kRows;
  if (threadIdx.x == 0) p.turns[blockIdx.x] = 0;
  const TileRange seen = key_tiles_of<S::kRows, S::kKeys>(p, row);
  if (seen.begin >= seen.end) {
    clear_rows<T, S::kWidth>(p.grad_query, b, h, row, S::kRows, p.queries);
    return;
  }
  float* const to = q.rows + static_cast<int64_t>(blockIdx.x) * (2 * S::kRows);
  const int lane = threadIdx.x % kLanes;
#pragma unroll
  for (int i = threadIdx.x / kLanes; i < S::kRows; i += 256 / kLanes) {
    const int at = row + i;
    float sum = 0;
    if (at < p.queries && lane < S::kWidth / 8) {
      const uint4 x = __ldg(
          reinterpret_cast<const uint4*>(q.output.at<T>(b, h) + at * q.output.row + lane * 8));
      const uint4 y = __ldg(reinterpret_cast<const uint4*>(q.grad_output.at<T>(b, h) +
                                                           at * q.grad_output.row + lane * 8));
      const T* const xs = reinterpret_cast<const T*>(&x);
      const T* const ys = reinterpret_cast<const T*>(&y);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        sum = fmaf(static_cast<float>(xs[e]), static_cast<float>(ys[e]), sum);
      }
    }
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, step);
    }
    if (lane != 0) continue;
    float shift = INFINITY;
    if (at < p.queries) {
      const float logsumexp = q.logsumexp[static_cast<int64_t>(pair) * p.queries + at];
      if (q.grad_logsumexp != nullptr) {
        sum -= q.grad_logsumexp[b * q.grad_batch + h * q.grad_head + at * q.grad_row];
      }
      if (logsumexp == -INFINITY) {
        sum = 0;
      } else {
        shift = logsumexp * 1.4426950408889634f;
      }
    }
    to[i] = shift;
    to[S::kRows + i] = sum;
  }
}

// ---- what follows

// Writes the gradients of the queries from their sums. A sum has, for each warpgroup, packs of four
// values of each thread; see fragments.cuh. A thread writes 16 columns of two rows. One thread
// block per tile.
template <class S>
__global__ void __launch_bounds__(256) finish_backward(const __grid_constant__ Backward p) {
  using T = typename S::T;
  const int tile = static_cast<int>(blockIdx.x) % p.row_tiles;
  const int pair = static_cast<int>(blockIdx.x) / p.row_tiles;
  const int row = tile * S::kRows;
  const TileRange seen = key_tiles_of<S::kRows, S::kKeys>(p, row);
  if (seen.begin >= seen.end) return;
  const float4* const sums = reinterpret_cast<const float4*>(
      p.sums + static_cast<int64_t>(blockIdx.x) * (S::kRows * S::kWidth));
  T* const to = p.grad_query.at<T>(pair / p.heads, pair % p.heads);
#pragma unroll
  for (int i = threadIdx.x; i < S::kRows * S::kWidth / 32; i += 256) {
    const int quad_row = i % 32, pack_pair = i / 32;  // 32 groups of four threads
    constexpr int kPacks = S::kWidth / 8;
    const int pack_at = pack_pair * 2;  // the warpgroups' packs, one after the other
    const int group = S::kSplitsRows ? pack_at / kPacks : 0;
    const int first = row + group * 64 + quad_row / 8 * 16 + quad_row % 8;
    const int column = (pack_at - group * kPacks) * 8;
    uint32_t words[2][8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float4 x = __ldcs(sums + (pack_at + k / 4) * 128 + quad_row * 4 + k % 4);
      words[0][k] = pack<T>(x.x * p.scale, x.y * p.scale);
      words[1][k] = pack<T>(x.z * p.scale, x.w * p.scale);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (first + 8 * r >= p.queries) continue;
      auto* const line = reinterpret_cast<uint4*>(to + (first + 8 * r) * p.grad_query.row + column);
      line[0] = make_uint4(words[r][0], words[r][1], words[r][2], words[r][3]);
      line[1] = make_uint4(words[r][4], words[r][5], words[r][6], words[r][7]);
    }
  }
}

}  // namespace mytorch::cuda::hopper
