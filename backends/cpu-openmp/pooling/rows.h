// The inner loops of pooling: over all windows along a row, or over all channels of one window.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "backends/cpu-openmp/pooling/planes.h"

namespace mytorch::cpu {

template <class W>
constexpr W lowest() {
  using Limits = std::numeric_limits<W>;
  return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}

// The steps of separable.h for elements of any type. rows.cpp has vector code for float.
template <class W>
struct PlainRows {
  static void split(const Phases& phases, const W* row, W* apart) { phases.split(row, apart); }
  // Computes the maximum of the taps of n windows, and its position, which is row + x for column x.
  // `start` has the first column of each window. The first of equal maxima is kept; a NaN always
  // replaces.
  static void max_taps(const W* apart, const int64_t* taps, const Window& window, int64_t row,
                       const int32_t* start, int64_t n, W* best, int32_t* which) {
    for (int64_t i = 0; i < n; ++i) {
      W value = apart[taps[0] + i];
      int64_t at = row + start[i];
      for (int64_t k = 1; k < window.kernel; ++k) {
        const W x = apart[taps[k] + i];
        const bool takes = x > value || x != x;
        value = takes ? x : value;
        at = takes ? row + window.place(i, k) : at;
      }
      best[i] = value;
      which[i] = static_cast<int32_t>(at);
    }
  }
  // Does the same for `count` rows.
  static void max_rows(const W* const* values, const int32_t* const* places, int64_t count,
                       int64_t n, W* best, int64_t* which) {
    for (int64_t i = 0; i < n; ++i) {
      W value = values[0][i];
      int32_t at = places[0][i];
      for (int64_t k = 1; k < count; ++k) {
        const W x = values[k][i];
        const bool takes = x > value || x != x;
        value = takes ? x : value;
        at = takes ? places[k][i] : at;
      }
      best[i] = value;
      which[i] = at;
    }
  }

  static W sum(const W* x, int64_t n) {
    W sum{};
    for (int64_t i = 0; i < n; ++i) sum += x[i];
    return sum;
  }
  // Computes the sum of `count` rows, `pitch` apart.
  static void sum_rows(const W* x, int64_t pitch, int64_t count, int64_t n, W* to) {
    std::fill(to, to + n, W{});
    for (int64_t k = 0; k < count; ++k) add(x + k * pitch, n, to);
  }
  static void sum_taps(const W* apart, const int64_t* taps, int64_t count, int64_t n, W* to) {
    std::fill(to, to + n, W{});
    for (int64_t k = 0; k < count; ++k) add(apart + taps[k], n, to);
  }
  static void add(const W* x, int64_t n, W* to) {
    for (int64_t i = 0; i < n; ++i) to[i] += x[i];
  }
  // Computes x / (count * counts), but 0 for x = 0: windows that contain only padding count no
  // elements.
  static void divide(const W* x, const W* counts, W count, int64_t n, W* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = x[i] == 0 ? W{} : x[i] / (count * counts[i]);
  }
};

// Computes the most common window, 2 x 2 with stride 2, in one step: `n` windows of the rows `top`
// and `top + pitch`. The first element of `top` has index `index`.
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
// Computes `rows` rows of `n` such windows in a plane of `size` elements.
template <class W>
inline void max_2x2_plane(const W* x, int64_t pitch, int64_t /*size*/, int64_t rows, int64_t n,
                          W* best, int64_t* which) {
  for (int64_t y = 0; y < rows; ++y) {
    const int64_t index = 2 * y * pitch;
    max_2x2_row(x + index, pitch, index, n, best + y * n, which + y * n);
  }
}

// Computes the maximum of input[at[t] + i] over taps t, and its position which[t]; `start` if there
// are no taps.
template <class W>
inline void max_channels(const W* input, const int64_t* at, const int32_t* which, int64_t taps,
                         int32_t start, int64_t n, W* best, int64_t* places) {
  for (int64_t i = 0; i < n; ++i) {
    W value = lowest<W>();
    int32_t place = start;
    for (int64_t t = 0; t < taps; ++t) {
      const W x = input[at[t] + i];
      const bool takes = x > value || x != x;
      value = takes ? x : value;
      place = takes ? which[t] : place;
    }
    best[i] = value;
    places[i] = place;
  }
}

}  // namespace mytorch::cpu
