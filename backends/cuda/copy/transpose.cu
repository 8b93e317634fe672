// Transposed copies: tiles are read along the rows of one side, transposed in shared memory, and
// written along the rows of the other, so that both accesses are coalesced.
#include <algorithm>
#include <array>
#include <type_traits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/copy/copy.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

constexpr int kTransposeDims = 6;
constexpr int kTransposeThreads = 256;
constexpr int64_t kLeast = 8;  // fewer rows or columns would leave tiles mostly empty

template <class T>
inline constexpr int kTransposeTile = sizeof(T) <= 2 ? 64 : 32;

// `x` is the contiguous dimension of `to`, `y` that of `from`.
struct Tiles {
  uint32_t size_x, size_y;
  int64_t to_stride_y, from_stride_x;
  Divisor across, down;  // tiles in x, in y
};

template <class To, class From>
__global__ void __launch_bounds__(kTransposeThreads)
    move_tiles(const __grid_constant__ Tiles tiles,
               const __grid_constant__ OffsetCalculator<2, kTransposeDims> batch, To* to,
               const From* from) {
  constexpr int kSide = kTransposeTile<From>;
  constexpr int kStep = kTransposeThreads / kSide;
  __shared__ From tile[kSide][kSide + 1];
  const uint32_t row = tiles.across.divide(blockIdx.x);
  const uint32_t sheet = tiles.down.divide(row);
  const uint32_t x0 = (blockIdx.x - row * tiles.across.by) * kSide;
  const uint32_t y0 = (row - sheet * tiles.down.by) * kSide;
  int64_t at[2];
  batch.offsets(sheet, at);
  const uint32_t lane = threadIdx.x % kSide;
  const uint32_t step = threadIdx.x / kSide;

  const From* source = from + at[1] + y0 + lane;
#pragma unroll
  for (uint32_t i = 0; i < kSide; i += kStep) {
    const uint32_t x = x0 + step + i;
    if (x < tiles.size_x && y0 + lane < tiles.size_y) {
      tile[step + i][lane] = source[x * tiles.from_stride_x];
    }
  }
  __syncthreads();
  To* target = to + at[0] + x0 + lane;
#pragma unroll
  for (uint32_t i = 0; i < kSide; i += kStep) {
    const uint32_t y = y0 + step + i;
    if (y < tiles.size_y && x0 + lane < tiles.size_x) {
      target[y * tiles.to_stride_y] = convert<To>(tile[lane][step + i]);
    }
  }
}

// Elements of one or two bytes are moved as 4-byte words: a thread reads kK consecutive elements in
// each of kK rows and transposes them in registers.
__device__ __forceinline__ void transpose_words(uint32_t (&w)[2]) {
  const uint32_t a = w[0], b = w[1];
  w[0] = __byte_perm(a, b, 0x5410);
  w[1] = __byte_perm(a, b, 0x7632);
}
__device__ __forceinline__ void transpose_words(uint32_t (&w)[4]) {
  const uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[0], w[1], 0x7362);
  const uint32_t c = __byte_perm(w[2], w[3], 0x5140), d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, c, 0x5410);
  w[1] = __byte_perm(a, c, 0x7632);
  w[2] = __byte_perm(b, d, 0x5410);
  w[3] = __byte_perm(b, d, 0x7632);
}

// All sizes and strides are multiples of kK elements. to_stride_y, from_stride_x and the pointers
// are in words, everything else is in elements.
template <int kK>
__global__ void __launch_bounds__(kTransposeThreads)
    move_words(const __grid_constant__ Tiles tiles,
               const __grid_constant__ OffsetCalculator<2, kTransposeDims> batch, uint32_t* to,
               const uint32_t* from) {
  constexpr int kSide = 32;  // words
  constexpr int kWarps = kTransposeThreads / 32;
  __shared__ uint32_t tile[kK][kSide][kSide + 1];
  const uint32_t row = tiles.across.divide(blockIdx.x);
  const uint32_t sheet = tiles.down.divide(row);
  const uint32_t x0 = (blockIdx.x - row * tiles.across.by) * kSide;
  const uint32_t y0 = (row - sheet * tiles.down.by) * kSide;
  int64_t at[2];
  batch.offsets(sheet, at);
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t words_x = tiles.size_x / kK, words_y = tiles.size_y / kK;

  const uint32_t* source = from + at[1] / kK + y0 + lane;
#pragma unroll
  for (uint32_t i = warp; i < kSide; i += kWarps) {
    if (x0 + i >= words_x || y0 + lane >= words_y) continue;
    uint32_t word[kK];
#pragma unroll
    for (int k = 0; k < kK; ++k) {
      word[k] = source[(int64_t{x0 + i} * kK + k) * tiles.from_stride_x];
    }
    transpose_words(word);
#pragma unroll
    for (int k = 0; k < kK; ++k) tile[k][lane][i] = word[k];
  }
  __syncthreads();
  uint32_t* target = to + at[0] / kK + x0 + lane;
#pragma unroll
  for (uint32_t i = warp; i < kSide * kK; i += kWarps) {
    const uint32_t y = y0 * kK + i;
    if (y < tiles.size_y && x0 + lane < words_x) {
      target[y * tiles.to_stride_y] = tile[i % kK][i / kK][lane];
    }
  }
}

template <class Kernel>
void start_tiles(Tiles tiles, uint32_t side, const CopyLoop& batch, Kernel&& kernel) {
  tiles.across = Divisor((tiles.size_x + side - 1) / side);
  tiles.down = Divisor((tiles.size_y + side - 1) / side);
  const int64_t sheet = int64_t{tiles.across.by} * tiles.down.by;
  for_each_part<kTransposeDims>(
      batch,
      [&](const OffsetCalculator<2, kTransposeDims>& part, const std::array<int64_t, 2>& at) {
        kernel(tiles,
               Grid{dim3(static_cast<unsigned>(sheet * part.numel)), dim3(kTransposeThreads)}, part,
               at);
      },
      std::max<int64_t>(1, kMaxPart / sheet));
}

template <class To, class From>
void tiles_as(mt_ctx& ctx, const Tiles& tiles, const CopyLoop& batch, void* to, const void* from) {
  start_tiles(tiles, kTransposeTile<From>, batch,
              [&](const Tiles& t, const Grid& grid, const auto& part, const auto& at) {
                launch(ctx, "move_tiles", move_tiles<To, From>, grid, t, part,
                       static_cast<To*>(to) + at[0], static_cast<const From*>(from) + at[1]);
              });
}

template <class T>
void transpose_as(mt_ctx& ctx, const Tiles& tiles, const CopyLoop& batch, void* to,
                  const void* from) {
  constexpr int kK = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  if constexpr (kK > 1) {
    uint64_t bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    bits |= (tiles.size_x | tiles.size_y) * sizeof(T);
    bits |= static_cast<uint64_t>(tiles.to_stride_y | tiles.from_stride_x) * sizeof(T);
    for (int d = 0; d < batch.ndim(); ++d) {
      bits |= static_cast<uint64_t>(batch.stride(0, d) | batch.stride(1, d)) * sizeof(T);
    }
    if (bits % 4 == 0) {
      Tiles words = tiles;
      words.to_stride_y /= kK;
      words.from_stride_x /= kK;
      start_tiles(words, 32 * kK, batch,
                  [&](const Tiles& t, const Grid& grid, const auto& part, const auto& at) {
                    launch(ctx, "move_words", move_words<kK>, grid, t, part,
                           static_cast<uint32_t*>(to) + at[0] / kK,
                           static_cast<const uint32_t*>(from) + at[1] / kK);
                  });
      return;
    }
  }
  tiles_as<T, T>(ctx, tiles, batch, to, from);
}

// The conversions common in networks; others are copied element by element.
template <class To, class From>
inline constexpr bool kHasTiles = !std::is_same_v<To, From> && sizeof(To) <= 4 &&
                                  sizeof(From) <= 4 && is_float<To> && is_float<From>;

}  // namespace

bool copy_transposed(mt_ctx& ctx, const CopyLoop& loop, mt_dtype to_type, void* to,
                     mt_dtype from_type, const void* from) {
  const int x = loop.ndim() - 1;
  if (x < 1 || loop.stride(0, x) != 1 || loop.stride(1, x) == 1) return false;
  int y = -1;
  for (int d = 0; d < x; ++d) {
    if (loop.stride(1, d) == 1 && (y < 0 || loop.shape()[d] > loop.shape()[y])) y = d;
  }
  if (y < 0 || std::min(loop.shape()[x], loop.shape()[y]) < kLeast) return false;
  if (std::max(loop.shape()[x], loop.shape()[y]) >= kMaxPart) return false;

  Tiles tiles{};
  tiles.size_x = static_cast<uint32_t>(loop.shape()[x]);
  tiles.size_y = static_cast<uint32_t>(loop.shape()[y]);
  tiles.to_stride_y = loop.stride(0, y);
  tiles.from_stride_x = loop.stride(1, x);
  std::array<int64_t, sdk::kMaxDims> shape;
  std::array<int64_t, sdk::kMaxDims> strides[2];
  size_t rest = 0;
  for (int d = 0; d < x; ++d) {
    if (d == y) continue;
    shape[rest] = loop.shape()[d];
    for (int k = 0; k < 2; ++k) strides[k][rest] = loop.stride(k, d);
    ++rest;
  }
  const CopyLoop batch({shape.data(), rest}, {strides[0].data(), strides[1].data()});
  if (sdk::same_dtype(to_type, from_type)) {
    sdk::visit_itemsize(sdk::itemsize(to_type), [&](auto tag) {
      transpose_as<typename decltype(tag)::type>(ctx, tiles, batch, to, from);
    });
    return true;
  }
  return visit_type(to_type, [&](auto to_tag) {
    return visit_type(from_type, [&](auto from_tag) {
      using To = typename decltype(to_tag)::type;
      using From = typename decltype(from_tag)::type;
      if constexpr (kHasTiles<To, From>) tiles_as<To, From>(ctx, tiles, batch, to, from);
      return kHasTiles<To, From>;
    });
  });
}

}  // namespace mytorch::cuda
