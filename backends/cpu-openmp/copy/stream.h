// Moves of bytes that know about caches.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// Results of this size and more are stored past the caches: they would push everything else out,
// and a store through the cache first reads the line that it overwrites.
inline constexpr int64_t kStreamBytes = int64_t{8} << 20;

// Copies with non-temporal stores where whole lines are written. Call stream_fence() once all of a
// thread's are done.
void stream_copy(void* to, const void* from, int64_t bytes);
void stream_fence();
// The same for rows of `bytes` bytes, or through the caches.
void move_rows(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t rows,
               int64_t bytes, bool stream);
// Repeats the 64 bytes at `pattern`, `to` being aligned to the period of the pattern.
void stream_fill(void* to, const void* pattern, int64_t bytes);

// to[c][r] = from[r][c] for elements of 1, 2, 4 or 8 bytes. Rows lie `from_stride` and `to_stride`
// bytes apart; the elements of a row are neighbours.
void transpose(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t rows,
               int64_t cols, int64_t itemsize);

}  // namespace mytorch::cpu
