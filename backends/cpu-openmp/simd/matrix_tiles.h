// AMX: products of matrices of bfloat16 by tiles of 16 x 16 pairs, summed in float32. A pair lies
// in a uint32, its first number in the low half. Numbers below 2^-126 count as zero.
#pragma once

#include <cstdint>

namespace mytorch::simd {

// Whether the set in use is AVX-512 with products of pairs, and the processor and the system let
// this process use tiles (instruction_set.h).
bool has_matrix_tiles();

// The lanes of a panel: two tiles.
inline constexpr int64_t kTilePanel = 32;

// c (+)= a b, of m x k and k x n pairs. Element (i, p) of `a` is at a[i * a_row + p * a_k], where
// one of the strides is 1. `b` is in panels of kTilePanel lanes, `panel_step` apart: pair p of lane
// l is at [p][l]. Rows of `c` have room for a multiple of 16 columns, of which n of the last panel
// may be the first half. The thread must hold a TilesInUse.
void tile_product(int64_t m, int64_t n, int64_t k, const uint32_t* a, int64_t a_row, int64_t a_k,
                  const uint32_t* b, int64_t panel_step, float* c, int64_t c_row, bool add);

// Configures the tiles of the thread, and gives them up at the end: their contents would otherwise
// be saved whenever the system switches threads.
class TilesInUse {
 public:
  TilesInUse();
  ~TilesInUse();
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
};

}  // namespace mytorch::simd
