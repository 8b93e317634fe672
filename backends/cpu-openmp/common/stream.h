// Copies with and without non-temporal stores.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// Results of at least this size are stored non-temporally: they would evict everything else from
// the caches, and a store through the cache reads the line that it overwrites first.
inline constexpr int64_t kStreamBytes = int64_t{8} << 20;

struct CopyFns {
  // Copies `rows` rows of `bytes` bytes. If `stream`, whole cache lines are stored non-temporally.
  void (*move_rows)(void* to, int64_t to_stride, const void* from, int64_t from_stride,
                    int64_t rows, int64_t bytes, bool stream);
  // Repeats the 64 bytes at `pattern` with non-temporal stores. `to` is aligned to the period of
  // the pattern.
  void (*stream_fill)(void* to, const void* pattern, int64_t bytes);
  // Sets to[c][r] = from[r][c] for elements of 1, 2, 4 or 8 bytes. Rows are `from_stride` and
  // `to_stride` bytes apart; the elements of a row are adjacent.
  void (*transpose)(const void* from, int64_t from_stride, void* to, int64_t to_stride,
                    int64_t rows, int64_t cols, int64_t itemsize);
};

const CopyFns* copy_fns();

// Copies with non-temporal stores. A thread calls stream_fence() after its last one.
inline void stream_copy(void* to, const void* from, int64_t bytes) {
  copy_fns()->move_rows(to, 0, from, 0, 1, bytes, true);
}
void stream_fence();

}  // namespace mytorch::cpu
