// Rows of a table, one after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu-openmp/copy/stream.h"

namespace mytorch::cpu {

// Rows shorter than this are not worth storing past the caches.
inline constexpr int64_t kStreamRow = 256;

// Copies rows of `bytes` bytes for i in [begin, end): from + which(i) * from_row, in bytes, to
// to + i * to_row. Rows lie anywhere, which the prefetchers do not foresee: the beginning of each
// is fetched a few rows ahead. `stream`: past the caches; call stream_fence() once all are done.
template <class Which>
void take_rows(char* to, int64_t to_row, const char* from, int64_t from_row, int64_t bytes,
               int64_t begin, int64_t end, bool stream, Which&& which) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kFetch = 1024;  // bytes of a row; the prefetchers see to what follows
  const int64_t ahead = bytes >= kFetch ? 2 : 4;
  const int64_t fetched = std::min(bytes, kFetch);
  for (int64_t i = begin; i < end; ++i) {
    if (i + ahead < end) {
      const char* coming = from + which(i + ahead) * from_row;
      for (int64_t k = 0; k < fetched; k += kLine) __builtin_prefetch(coming + k);
    }
    const char* row = from + which(i) * from_row;
    if (stream) {
      stream_copy(to + i * to_row, row, bytes);
    } else {
      std::memcpy(to + i * to_row, row, static_cast<size_t>(bytes));
    }
  }
}

}  // namespace mytorch::cpu
