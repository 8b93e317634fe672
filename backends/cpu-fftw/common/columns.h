// Copies between rows without gaps and lines whose elements are apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "backends/cpu-fftw/common/library.h"

namespace mytorch::fftw {

// Transposes a tile: to[c * to_step + r] = from[r * from_step + c].
template <class T>
void turn_tile(const T* from, int64_t from_step, int64_t rows, int64_t columns, T* to,
               int64_t to_step) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * to_step + r] = from[r * from_step + c];
  }
}
// In vectors.
void turn_tile(const Complex<float>* from, int64_t from_step, int64_t rows, int64_t columns,
               Complex<float>* to, int64_t to_step);

// Neighbors in memory are loaded and stored together. The processor does not foresee accesses that
// are pages apart, so elements of later steps are fetched here, kLine steps at once.
inline constexpr int64_t kAhead = 16, kLine = 8;

template <bool writes, class T>
inline void fetch(const T* at, int64_t count) {
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(64 / sizeof(T))) {
    __builtin_prefetch(at + i, writes ? 1 : 0, 2);
  }
}

// Copies `count` lines of `size` elements, which are `step` apart, to rows. Lines are `next` apart.
template <class T>
void load(const T* from, int64_t step, int64_t next, int64_t size, int64_t count, T* rows,
          int64_t pitch) {
  if (next == 1 && std::abs(step) > 1) {
    int64_t k = 0;
    for (; k + kLine <= size; k += kLine) {
      for (int64_t j = k + kAhead; j < std::min(k + kAhead + kLine, size); ++j) {
        fetch<false>(from + j * step, count);
      }
      turn_tile(from + k * step, step, kLine, count, rows + k, pitch);
    }
    for (; k < size; ++k) {
      for (int64_t i = 0; i < count; ++i) rows[i * pitch + k] = from[k * step + i];
    }
    return;
  }
  if (std::abs(next) < std::abs(step)) {
    for (int64_t k = 0; k < size; ++k) {
      for (int64_t i = 0; i < count; ++i) rows[i * pitch + k] = from[k * step + i * next];
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = 0; k < size; ++k) rows[i * pitch + k] = from[k * step + i * next];
  }
}

// The inverse of load.
template <class T>
void store(const T* rows, int64_t pitch, T* to, int64_t step, int64_t next, int64_t size,
           int64_t count) {
  if (next == 1 && std::abs(step) > 1) {
    int64_t k = 0;
    for (; k + kLine <= size; k += kLine) {
      for (int64_t j = k + kAhead; j < std::min(k + kAhead + kLine, size); ++j) {
        fetch<true>(to + j * step, count);
      }
      turn_tile(rows + k, pitch, count, kLine, to + k * step, step);
    }
    for (; k < size; ++k) {
      for (int64_t i = 0; i < count; ++i) to[k * step + i] = rows[i * pitch + k];
    }
    return;
  }
  if (std::abs(next) < std::abs(step)) {
    for (int64_t k = 0; k < size; ++k) {
      for (int64_t i = 0; i < count; ++i) to[k * step + i * next] = rows[i * pitch + k];
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = 0; k < size; ++k) to[k * step + i * next] = rows[i * pitch + k];
  }
}

}  // namespace mytorch::fftw
