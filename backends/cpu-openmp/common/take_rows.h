// Copies of selected rows of a table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu-openmp/common/stream.h"

namespace mytorch::cpu {

// Shorter rows are not stored non-temporally.
inline constexpr int64_t kStreamRow = 256;

// Copies rows of `bytes` bytes, from + which(i) * from_row to to + i * to_row, for i in [begin,
// end). Hardware prefetchers cannot predict the rows, so the beginning of each is prefetched a few
// rows ahead. With `stream`, stores are non-temporal; call stream_fence() after the last row.
template <class Which>
void take_rows(char* to, int64_t to_row, const char* from, int64_t from_row, int64_t bytes,
               int64_t begin, int64_t end, bool stream, Which&& which) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kFetch = 1024;  // bytes of a row; hardware prefetchers load the rest
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
