#include "backends/cpu-openmp/simd/matrix_tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

// The tiles of a block of results: tmm0 to tmm3, then two of `a` and two of `b`. Compilers know of
// no tile, so nothing needs to be told what these instructions overwrite.
#define MYTORCH_TILE_LOAD(tile, from, step) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(step) : "memory")
#define MYTORCH_TILE_STORE(tile, to, step) \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(step) : "memory")
#define MYTORCH_TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile ::)
#define MYTORCH_TILE_PRODUCT(c, a, b) \
  asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

namespace mytorch::simd {
namespace {

constexpr int64_t kTile = 16;        // rows, and pairs or floats in a row
constexpr int64_t kMostPairs = 256;  // of a sum before it is added to c
constexpr int64_t kBytes = 4;        // of a pair, and of a float
constexpr int64_t kPanelStep = kTilePanel * kBytes;

constexpr int64_t whole_tiles(int64_t n) { return (n + kTile - 1) / kTile * kTile; }

// A block of one or two tiles of rows by one or two of columns, of `k` pairs, a multiple of 16.
template <int kRows, int kCols>
void block(int64_t k, const uint32_t* a, int64_t a_row, const uint32_t* b, float* c, int64_t c_row,
           bool add) {
  const int64_t a_step = a_row * kBytes, c_step = c_row * kBytes;
  float* below = c + kTile * c_row;
  if (add) {
    MYTORCH_TILE_LOAD(0, c, c_step);
    if constexpr (kCols == 2) MYTORCH_TILE_LOAD(1, c + kTile, c_step);
    if constexpr (kRows == 2) MYTORCH_TILE_LOAD(2, below, c_step);
    if constexpr (kRows == 2 && kCols == 2) MYTORCH_TILE_LOAD(3, below + kTile, c_step);
  } else {
    MYTORCH_TILE_ZERO(0);
    if constexpr (kCols == 2) MYTORCH_TILE_ZERO(1);
    if constexpr (kRows == 2) MYTORCH_TILE_ZERO(2);
    if constexpr (kRows == 2 && kCols == 2) MYTORCH_TILE_ZERO(3);
  }
  for (int64_t p = 0; p < k; p += kTile, a += kTile, b += kTile * kTilePanel) {
    MYTORCH_TILE_LOAD(6, b, kPanelStep);
    MYTORCH_TILE_LOAD(4, a, a_step);
    MYTORCH_TILE_PRODUCT(0, 4, 6);
    if constexpr (kCols == 2) {
      MYTORCH_TILE_LOAD(7, b + kTile, kPanelStep);
      MYTORCH_TILE_PRODUCT(1, 4, 7);
    }
    if constexpr (kRows == 2) {
      MYTORCH_TILE_LOAD(5, a + kTile * a_row, a_step);
      MYTORCH_TILE_PRODUCT(2, 5, 6);
      if constexpr (kCols == 2) MYTORCH_TILE_PRODUCT(3, 5, 7);
    }
  }
  MYTORCH_TILE_STORE(0, c, c_step);
  if constexpr (kCols == 2) MYTORCH_TILE_STORE(1, c + kTile, c_step);
  if constexpr (kRows == 2) MYTORCH_TILE_STORE(2, below, c_step);
  if constexpr (kRows == 2 && kCols == 2) MYTORCH_TILE_STORE(3, below + kTile, c_step);
}

using BlockFn = void (*)(int64_t, const uint32_t*, int64_t, const uint32_t*, float*, int64_t, bool);
constexpr BlockFn kBlocks[2][2] = {{&block<1, 1>, &block<1, 2>}, {&block<2, 1>, &block<2, 2>}};

// Transposes 16 x 16 pairs.
__attribute__((target("avx512f"))) void transpose_tile(const uint32_t* from, int64_t from_step,
                                                       uint32_t* to, int64_t to_step) {
  __m512i x[kTile], y[kTile];
  for (int i = 0; i < kTile; ++i) x[i] = _mm512_loadu_si512(from + i * from_step);
  for (int i = 0; i < kTile; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int i = 0; i < kTile; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  // x[4 g + r] has row r + 4 q of the result in its quarter q, of the rows of `from` of group g.
  for (int r = 0; r < 4; ++r) {
    const __m512i low0 = _mm512_shuffle_i32x4(x[r], x[r + 4], 0x88);
    const __m512i low1 = _mm512_shuffle_i32x4(x[r + 8], x[r + 12], 0x88);
    const __m512i high0 = _mm512_shuffle_i32x4(x[r], x[r + 4], 0xdd);
    const __m512i high1 = _mm512_shuffle_i32x4(x[r + 8], x[r + 12], 0xdd);
    _mm512_storeu_si512(to + r * to_step, _mm512_shuffle_i32x4(low0, low1, 0x88));
    _mm512_storeu_si512(to + (r + 8) * to_step, _mm512_shuffle_i32x4(low0, low1, 0xdd));
    _mm512_storeu_si512(to + (r + 4) * to_step, _mm512_shuffle_i32x4(high0, high1, 0x88));
    _mm512_storeu_si512(to + (r + 12) * to_step, _mm512_shuffle_i32x4(high0, high1, 0xdd));
  }
}

// Operands that do not fill tiles, or whose pairs do not lie in a row, are copied.
struct Copies {
  alignas(64) uint32_t a[2 * kTile * kMostPairs];
  alignas(64) uint32_t b[kTile * kTilePanel];
  alignas(64) float c[2 * kTile * kTilePanel];
};

// Copies m <= 32 rows of `k` pairs into rows of whole tiles, `to_step` apart.
void copy_rows(int64_t m, int64_t k, const uint32_t* a, int64_t a_row, int64_t a_k, uint32_t* to,
               int64_t to_step) {
  if (m % kTile != 0 || k % kTile != 0) {
    std::memset(to, 0, static_cast<size_t>(whole_tiles(m) * to_step) * kBytes);
  }
  if (a_k == 1) {
    for (int64_t i = 0; i < m; ++i) {
      std::memcpy(to + i * to_step, a + i * a_row, static_cast<size_t>(k) * kBytes);
    }
    return;
  }
  for (int64_t i = 0; i < m; i += kTile) {
    for (int64_t p = 0; p < k; p += kTile) {
      const uint32_t* from = a + i * a_row + p * a_k;
      uint32_t* tile = to + i * to_step + p;
      if (a_row == 1 && m - i >= kTile && k - p >= kTile) {
        transpose_tile(from, a_k, tile, to_step);
        continue;
      }
      const int64_t rows = std::min(kTile, m - i), pairs = std::min(kTile, k - p);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t q = 0; q < pairs; ++q) tile[r * to_step + q] = from[r * a_row + q * a_k];
      }
    }
  }
}

// At most kMostPairs pairs, and two tiles of rows.
void row_product(int64_t m, int64_t n, int64_t k, const uint32_t* a, int64_t a_row, int64_t a_k,
                 const uint32_t* b, int64_t panel_step, float* c, int64_t c_row, bool add,
                 Copies* copies) {
  const int64_t whole = k / kTile * kTile, rest = k - whole;
  if (a_k != 1 || m % kTile != 0 || rest != 0) {
    const int64_t step = whole_tiles(k);
    copy_rows(m, k, a, a_row, a_k, copies->a, step);
    a = copies->a;
    a_row = step;
  }
  const bool all_rows = m % kTile == 0;
  for (int64_t j = 0; j < n; j += kTilePanel, b += panel_step) {
    const int64_t cols = n - j > kTile ? 2 : 1;
    float* to = c + j;
    int64_t to_row = c_row;
    if (!all_rows) {
      to = copies->c;
      to_row = kTilePanel;
      for (int64_t i = 0; add && i < m; ++i) {
        std::memcpy(to + i * to_row, c + i * c_row + j, static_cast<size_t>(cols * kTile) * kBytes);
      }
    }
    const BlockFn run = kBlocks[m > kTile][cols - 1];
    if (whole > 0) run(whole, a, a_row, b, to, to_row, add);
    if (rest > 0) {
      std::memset(copies->b + rest * kTilePanel, 0,
                  static_cast<size_t>((kTile - rest) * kTilePanel) * kBytes);
      std::memcpy(copies->b, b + whole * kTilePanel, static_cast<size_t>(rest * kPanelStep));
      run(kTile, a + whole, a_row, copies->b, to, to_row, add || whole > 0);
    }
    for (int64_t i = 0; !all_rows && i < m; ++i) {
      std::memcpy(c + i * c_row + j, to + i * to_row, static_cast<size_t>(cols * kTile) * kBytes);
    }
  }
}

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace

void tile_product(int64_t m, int64_t n, int64_t k, const uint32_t* a, int64_t a_row, int64_t a_k,
                  const uint32_t* b, int64_t panel_step, float* c, int64_t c_row, bool add) {
  for (int64_t i = 0; i < m && k == 0 && !add; ++i) {
    std::fill(c + i * c_row, c + i * c_row + whole_tiles(n), 0.0f);
  }
  Copies copies;
  for (int64_t i = 0; i < m; i += 2 * kTile) {
    for (int64_t p = 0; p < k; p += kMostPairs) {
      row_product(std::min(2 * kTile, m - i), n, std::min(kMostPairs, k - p),
                  a + i * a_row + p * a_k, a_row, a_k, b + p * kTilePanel, panel_step,
                  c + i * c_row, c_row, add || p > 0, &copies);
    }
  }
}

TilesInUse::TilesInUse() {
  static const TileConfig config;
  asm volatile("ldtilecfg %0" ::"m"(config));
}
TilesInUse::~TilesInUse() { asm volatile("tilerelease" ::); }

}  // namespace mytorch::simd

#else

namespace mytorch::simd {

void tile_product(int64_t, int64_t, int64_t, const uint32_t*, int64_t, int64_t, const uint32_t*,
                  int64_t, float*, int64_t, bool) {}
TilesInUse::TilesInUse() = default;
TilesInUse::~TilesInUse() = default;

}  // namespace mytorch::simd

#endif  // __x86_64__
