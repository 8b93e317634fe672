// The same number of several lines side by side: 16 of float32, 8 of float64, a vector of AVX-512.
#pragma once

#include <cstdint>

#include "backends/cpu-fftw/common/library.h"

namespace mytorch::fftw {

template <class T>
inline constexpr int64_t kSideBySide = static_cast<int64_t>(64 / sizeof(T));

template <class T>
struct LanesOf {
  typedef T Type __attribute__((vector_size(64)));
};
template <class T>
using Lanes = typename LanesOf<T>::Type;

// A point of each line.
template <class T>
struct Point {
  Lanes<T> re, im;
};

// Lines in memory: number k of line i is at [k * step + i * next], where complex lines count
// complex numbers.
struct LineGeometry {
  int64_t step, next;
};

// Returns whether vectors load and store such lines.
inline bool suits_lanes(const LineGeometry& lines) { return lines.step == 1 || lines.next == 1; }

// Loads `count` lines of n complex points, or of 2 n real numbers as n points; the lanes beyond
// `count` are zeros. Stores n complex points of each line, or 2 n real numbers. `kReal` tells
// which. `streams` writes past the caches.
template <class T, bool kReal>
void load_points(const T* from, const LineGeometry& lines, int64_t count, int64_t n, Point<T>* to);
template <class T, bool kReal>
void store_points(const Point<T>* from, int64_t count, int64_t n, T* to, const LineGeometry& lines,
                  bool streams = false);

}  // namespace mytorch::fftw
