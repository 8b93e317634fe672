// Block sizes from the sizes of the caches.
#pragma once

#include <cstdint>

namespace mytorch::cpu::gemm_internal {

struct CacheSizes {
  int64_t l1, l2, l3;  // bytes; l1 is the data cache
};

// Returns the sizes of this machine, which are read once.
const CacheSizes& cache_sizes();

struct Blocking {
  int64_t mc;  // a multiple of the tile's rows
  int64_t nc;  // a multiple of the tile's columns
  int64_t kc;
};

// Returns the blocks for an m x n x k product of `bytes`-wide elements in tiles of tile_rows x
// tile_cols. Blocks are balanced: 1030 columns of k become three blocks of 344, not blocks of 512,
// 512 and 6.
Blocking choose_blocking(int64_t m, int64_t n, int64_t k, int64_t bytes, int64_t tile_rows,
                         int64_t tile_cols);

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

}  // namespace mytorch::cpu::gemm_internal
