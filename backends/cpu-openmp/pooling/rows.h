// One tap of a window for all outputs of a row at once: what pooling does in its innermost loop.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// best[i] = max(best[i], x[i * stride]) with where it was found, index + i * stride. The first of
// the largest stays; a NaN always replaces.
template <class W>
inline void max_row(const W* x, int64_t stride, int64_t index, int64_t n, W* best, int32_t* which) {
  for (int64_t i = 0; i < n; ++i) {
    const W value = x[i * stride];
    const bool takes = value > best[i] || value != value;
    best[i] = takes ? value : best[i];
    which[i] = takes ? static_cast<int32_t>(index + i * stride) : which[i];
  }
}
void max_row(const float* x, int64_t stride, int64_t index, int64_t n, float* best, int32_t* which);

// The most common window, 2 x 2 with stride 2, all taps at once: of rows `top` and `top + pitch`,
// whose first element has `index`.
template <class W>
inline void max_2x2_row(const W* top, int64_t pitch, int64_t index, int64_t n, W* best,
                        int64_t* which) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t places[] = {2 * i, 2 * i + 1, pitch + 2 * i, pitch + 2 * i + 1};
    W value = top[2 * i];
    int64_t at = 2 * i;
    for (const int64_t place : places) {
      const W x = top[place];
      const bool takes = x > value || x != x;
      value = takes ? x : value;
      at = takes ? place : at;
    }
    best[i] = value;
    which[i] = index + at;
  }
}
// `rows` rows of `n` such windows in a plane of `size` elements.
template <class W>
inline void max_2x2_plane(const W* x, int64_t pitch, int64_t /*size*/, int64_t rows, int64_t n,
                          W* best, int64_t* which) {
  for (int64_t y = 0; y < rows; ++y) {
    const int64_t index = 2 * y * pitch;
    max_2x2_row(x + index, pitch, index, n, best + y * n, which + y * n);
  }
}
void max_2x2_plane(const float* x, int64_t pitch, int64_t size, int64_t rows, int64_t n,
                   float* best, int64_t* which);

// sum[i] += x[i * stride]
template <class W>
inline void add_row(const W* x, int64_t stride, int64_t n, W* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i * stride];
}
void add_row(const float* x, int64_t stride, int64_t n, float* sum);

}  // namespace mytorch::cpu
