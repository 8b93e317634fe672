// The bits of masks and dropout, see bits.cuh.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backends/cuda/attention/calls_sm90.h"
#include "backends/cuda/common/philox.cuh"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda::hopper {
namespace {

struct PackMask {
  const bool* mask;
  int64_t batch, head, row, column;  // strides
  int heads, rows, columns;
  int words;  // of a row
  uint32_t* bits;
};

// Packs a mask; columns past the end are hidden. One warp per 32 words. If kAlong, the columns are
// adjacent in memory, and the warp reads 32 of them at a time; otherwise, 32 rows.
template <bool kAlong>
__global__ void __launch_bounds__(128)
    pack_mask(const __grid_constant__ PackMask p, int64_t total) {
  const int lane = threadIdx.x % 32;
  const int row_groups = (p.rows + 31) / 32;
  for (int64_t i = (int64_t{blockIdx.x} * 128 + threadIdx.x) / 32; i < total;
       i += int64_t{gridDim.x} * 4) {
    const int word = static_cast<int>(i % p.words);
    const int first = static_cast<int>(i / p.words % row_groups) * 32;
    const int64_t pair = i / p.words / row_groups;
    const bool* const from = p.mask + pair / p.heads * p.batch + pair % p.heads * p.head;
    uint32_t own = 0;
#pragma unroll 8
    for (int j = 0; j < 32; ++j) {
      const int bit = kAlong ? lane : j;
      const int column = word * 32 + bit % 8 / 2 * 8 + bit / 8 * 2 + bit % 2;
      const int row = first + (kAlong ? j : lane);
      const bool seen = row < p.rows && column < p.columns && from[row * p.row + column * p.column];
      if constexpr (kAlong) {
        const uint32_t all = __ballot_sync(0xffffffffu, seen);
        if (lane == j) own = all;
      } else {
        own |= (seen ? 1u : 0u) << j;
      }
    }
    if (first + lane < p.rows) p.bits[(pair * p.rows + first + lane) * p.words + word] = own;
  }
}

struct DrawBits {
  philox::Stream random = philox::Stream(mt_random{});
  // The stream's seed and call: read by the gradient, otherwise written.
  const int64_t* draw;
  int64_t* drawn;
  int64_t drawn_step;
  uint32_t most;             // keeps a weight if its number is at most this,
  uint32_t allowed;          // and this is not 0 but all ones
  uint32_t rows;             // of bits
  uint32_t queries, blocks;  // rows and random blocks of a row of the scores
  uint32_t words;
  uint32_t* bits;
};

// Draws which weights are kept. A random block has the numbers of four adjacent keys of a query.
// Each thread draws eight: for a word of 32 keys, or for eight queries of four words. Blocks have
// numbers of 32 bits. Their upper half is a constant then, from which the compiler computes a
// product of the first two rounds each once for all blocks of a thread.
template <bool kOfKeys>
__global__ void __launch_bounds__(128)
    draw_bits(const __grid_constant__ DrawBits p, uint32_t total) {
  philox::Stream random = p.random;
  random.start();
  if constexpr (kOfKeys) {
    random.seed = static_cast<uint64_t>(p.draw[0]);
    random.call = static_cast<uint64_t>(p.draw[1]);
  } else if (blockIdx.x == 0 && threadIdx.x == 0) {
    p.drawn[0] = static_cast<int64_t>(random.seed);
    p.drawn[p.drawn_step] = static_cast<int64_t>(random.call);
  }
  const uint32_t step = gridDim.x * 128;
  for (uint32_t i = blockIdx.x * 128 + threadIdx.x; i < total; i += step) {
    if constexpr (kOfKeys) {
      // The thread's part of the words: the queries 8 k + 2 part + c for k < 4 and c < 2.
      const uint32_t part = i % 4;
      const uint32_t rest = i / 4 / p.words;
      const uint32_t word = i / 4 - rest * p.words;
      const uint32_t pair = rest / p.blocks;
      const uint32_t keys = rest - pair * p.blocks;
      uint32_t own[4] = {0, 0, 0, 0};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint32_t query = word * 32 + j / 2 * 8 + part * 2 + j % 2;
        const uint4 numbers = random.block((pair * p.queries + query) * p.blocks + keys);
        own[0] |= numbers.x <= p.most ? 1u << j : 0u;
        own[1] |= numbers.y <= p.most ? 1u << j : 0u;
        own[2] |= numbers.z <= p.most ? 1u << j : 0u;
        own[3] |= numbers.w <= p.most ? 1u << j : 0u;
      }
      auto* const bytes = reinterpret_cast<uint8_t*>(p.bits);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t key = keys * 4 + k;
        if (key >= p.rows) break;
        bytes[(int64_t{pair * p.rows + key} * p.words + word) * 4 + part] =
            static_cast<uint8_t>(own[k] & p.allowed);
      }
    } else {
      const uint32_t row = i / p.words;
      const uint32_t word = i - row * p.words;
      uint32_t own = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint4 numbers = random.block(row * p.blocks + word * 8 + j);
        const int bit = j % 2 * 16 + j / 2 * 2;
        own |= numbers.x <= p.most ? 1u << bit : 0u;
        own |= numbers.y <= p.most ? 2u << bit : 0u;
        own |= numbers.z <= p.most ? 256u << bit : 0u;
        own |= numbers.w <= p.most ? 512u << bit : 0u;
      }
      p.bits[i] = own & p.allowed;
    }
  }
}

}  // namespace

Bits mask_bits(mt_ctx& ctx, const sdk::TensorView& mask, bool of_keys, int columns, int padded) {
  const int row_dim = of_keys ? 3 : 2, column_dim = of_keys ? 2 : 3;
  const auto stride = [&](int d) { return mask.size(d) == 1 ? 0 : mask.stride(d); };
  PackMask p{};
  p.mask = mask.data<bool>();
  p.batch = stride(0);
  p.head = stride(1);
  p.row = stride(row_dim);
  p.column = stride(column_dim);
  p.heads = static_cast<int>(mask.size(1));
  p.rows = static_cast<int>(mask.size(row_dim));
  p.columns = columns;
  p.words = padded / 32;
  const int64_t pairs = mask.size(0) * mask.size(1), row = p.words, head = row * p.rows;
  p.bits = scratch<uint32_t>(ctx, pairs * head);
  const int64_t total = pairs * ((p.rows + 31) / 32) * p.words;
  const auto kernel = p.column == 1 ? pack_mask<true> : pack_mask<false>;
  launch(ctx, "attention_mask", kernel, grid_for(ctx, total * 32, 128), p, total);
  return {p.bits, mask.size(0) == 1 ? 0 : head * mask.size(1), mask.size(1) == 1 ? 0 : head,
          p.rows == 1 ? 0 : row};
}

namespace {

Bits draw(mt_ctx& ctx, const Dropout& dropout, DrawBits p, bool of_keys, int padded) {
  // The upper 24 bits of a number are its value, in units of 2^-24.
  const auto limit = static_cast<uint32_t>(
      std::ceil(static_cast<double>(static_cast<float>(1 - dropout.p)) * 0x1p24));
  p.most = limit * 256 - 1;
  p.allowed = limit == 0 ? 0 : ~uint32_t{0};
  p.rows = static_cast<uint32_t>(of_keys ? dropout.keys : dropout.queries);
  p.queries = static_cast<uint32_t>(dropout.queries);
  p.blocks = static_cast<uint32_t>((dropout.keys + 3) / 4);
  p.words = static_cast<uint32_t>(padded / 32);
  const int64_t row = p.words, head = row * p.rows, pairs = dropout.batch * dropout.heads;
  const int64_t total = of_keys ? pairs * p.blocks * row * 4 : pairs * head;
  // Only with a few queries or keys, which are padded, are there so many.
  if (std::max(total, pairs * p.queries * p.blocks) > INT32_MAX) throw sdk::Declined{};
  p.bits = scratch<uint32_t>(ctx, pairs * head);
  launch(ctx, "attention_dropout", of_keys ? draw_bits<true> : draw_bits<false>,
         grid_for(ctx, total, 128), p, static_cast<uint32_t>(total));
  return {p.bits, head * dropout.heads, head, row};
}

}  // namespace

Bits new_dropout_bits(mt_ctx& ctx, const Dropout& dropout, const mt_random& random,
                      const sdk::TensorView& drawn, int padded) {
  DrawBits p{};
  p.random = philox::Stream(random);
  p.drawn = drawn.data<int64_t>();
  p.drawn_step = drawn.stride(0);
  return draw(ctx, dropout, p, false, padded);
}

Bits same_dropout_bits(mt_ctx& ctx, const Dropout& dropout, const sdk::TensorView& drawn,
                       int padded) {
  DrawBits p{};
  p.draw = drawn.data<int64_t>();
  return draw(ctx, dropout, p, true, padded);
}

}  // namespace mytorch::cuda::hopper
