#include "backends/cpu-fftw/common/lanes.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "backends/cpu-fftw/common/vectors.h"

namespace mytorch::fftw {
namespace {

// Half of a vector: what AVX2 has, too.
template <class T>
struct HalfOf {
  typedef T Type __attribute__((vector_size(32)));
};
template <class T>
using Half = typename HalfOf<T>::Type;
template <class T>
constexpr int64_t kHalf = static_cast<int64_t>(32 / sizeof(T));

template <class T>
[[gnu::always_inline]] inline Half<T> read(const T* from) {
  Half<T> v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}
template <class T>
[[gnu::always_inline]] inline void write(T* to, Half<T> v) {
  std::memcpy(static_cast<void*>(to), &v, sizeof(v));
}

// Past the caches, to a multiple of 32 bytes.
template <class T>
[[gnu::always_inline]] inline void stream(T* to, Half<T> v) {
#if defined(__SSE2__)
  typedef float Quarter __attribute__((vector_size(16)));
  Quarter parts[2];
  std::memcpy(parts, &v, sizeof(v));
  _mm_stream_ps(reinterpret_cast<float*>(to), parts[0]);
  _mm_stream_ps(reinterpret_cast<float*>(to) + 4, parts[1]);
#else
  write(to, v);
#endif
}

// Transposes a square of kHalf rows and columns.
[[gnu::always_inline]] inline void turn(const float* from, int64_t from_step, Half<float>* to) {
  Half<float> a[8], b[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) a[i] = read(from + i * from_step);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    a[i] = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    a[i + 1] = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    a[i + 2] = __builtin_shufflevector(b[i + 1], b[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    a[i + 3] = __builtin_shufflevector(b[i + 1], b[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    to[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    to[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

[[gnu::always_inline]] inline void turn(const double* from, int64_t from_step, Half<double>* to) {
  const Half<double> a = read(from), b = read(from + from_step);
  const Half<double> c = read(from + 2 * from_step), d = read(from + 3 * from_step);
  const Half<double> ab0 = __builtin_shufflevector(a, b, 0, 4, 2, 6);
  const Half<double> ab1 = __builtin_shufflevector(a, b, 1, 5, 3, 7);
  const Half<double> cd0 = __builtin_shufflevector(c, d, 0, 4, 2, 6);
  const Half<double> cd1 = __builtin_shufflevector(c, d, 1, 5, 3, 7);
  to[0] = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
  to[1] = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
  to[2] = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
  to[3] = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

template <class T>
[[gnu::always_inline]] inline void turn_square(const T* from, int64_t from_step, T* to,
                                               int64_t to_step) {
  Half<T> rows[kHalf<T>];
  turn(from, from_step, rows);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kHalf<T>; ++i) write(to + i * to_step, rows[i]);
}

// Two squares below each other to whole cache lines, past the caches.
template <class T>
[[gnu::always_inline]] inline void stream_squares(const T* from, int64_t from_step, T* to,
                                                  int64_t to_step) {
  constexpr int64_t side = kHalf<T>;
  Half<T> first[side], second[side];
  turn(from, from_step, first);
  turn(from + side * from_step, from_step, second);
#pragma GCC unroll 8
  for (int64_t i = 0; i < side; ++i) {
    stream(to + i * to_step, first[i]);
    stream(to + i * to_step + side, second[i]);
  }
}

// Separates complex numbers in a whole vector of numbers into parts, and the inverse.
[[gnu::always_inline]] inline void split_parts(const float* from, float* re, float* im) {
  const Half<float> a = read(from), b = read(from + 8);
  const Half<float> x = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
  const Half<float> y = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  write(re, __builtin_shufflevector(x, y, 0, 2, 8, 10, 4, 6, 12, 14));
  write(im, __builtin_shufflevector(x, y, 1, 3, 9, 11, 5, 7, 13, 15));
}
[[gnu::always_inline]] inline void join_parts(const float* re, const float* im, float* to) {
  const Half<float> a = read(re), b = read(im);
  const Half<float> x = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
  const Half<float> y = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  write(to, __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11));
  write(to + 8, __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15));
}
[[gnu::always_inline]] inline void split_parts(const double* from, double* re, double* im) {
  const Half<double> a = read(from), b = read(from + 4);
  const Half<double> x = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  const Half<double> y = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  write(re, __builtin_shufflevector(x, y, 0, 4, 2, 6));
  write(im, __builtin_shufflevector(x, y, 1, 5, 3, 7));
}
[[gnu::always_inline]] inline void join_parts(const double* re, const double* im, double* to) {
  const Half<double> a = read(re), b = read(im);
  const Half<double> x = __builtin_shufflevector(a, b, 0, 4, 2, 6);
  const Half<double> y = __builtin_shufflevector(a, b, 1, 5, 3, 7);
  write(to, __builtin_shufflevector(x, y, 0, 1, 4, 5));
  write(to + 4, __builtin_shufflevector(x, y, 2, 3, 6, 7));
}

// Rows of later steps are fetched, because the processor does not foresee accesses that are pages
// apart: into the second-level cache, because their addresses share a set of the first.
constexpr int64_t kAhead = 8;
template <class T, bool kReal, int kWrites>
[[gnu::always_inline]] inline void fetch_row(const T* row) {
  __builtin_prefetch(row, kWrites, 2);
  if constexpr (!kReal) __builtin_prefetch(row + kSideBySide<T>, kWrites, 2);
}

constexpr int64_t kFetched = 1024;  // bytes ahead within lines

// A row of kSideBySide numbers, or of 2 kSideBySide if lines are complex neighbors.
template <class T, bool kReal>
[[gnu::always_inline]] inline void load_row(const T* from, T* to) {
  if constexpr (kReal) {
    std::memcpy(static_cast<void*>(to), from, 64);
  } else {
    constexpr int64_t n = kSideBySide<T>;
    split_parts(from, to, to + n);
    split_parts(from + n, to + kHalf<T>, to + n + kHalf<T>);
  }
}
template <class T, bool kReal>
[[gnu::always_inline]] inline void store_row(const T* from, T* to) {
  if constexpr (kReal) {
    std::memcpy(static_cast<void*>(to), from, 64);
  } else {
    constexpr int64_t n = kSideBySide<T>;
    join_parts(from, from + n, to);
    join_parts(from + kHalf<T>, from + n + kHalf<T>, to + n);
  }
}

// Real numbers of a point, or the parts of complex neighbors, are this many numbers apart.
template <class T, bool kReal>
[[gnu::always_inline]] inline void load_lines(const T* from, const LineGeometry& lines,
                                              int64_t count, int64_t n, T* to) {
  constexpr int64_t lanes = kSideBySide<T>, side = kHalf<T>, parts = kReal ? 1 : 2;
  const int64_t numbers = 2 * n;
  if (lines.step == 1) {
    const int64_t next = lines.next * parts, whole = count == lanes ? numbers / side * side : 0;
    // Half of the lines at a time: lines are often a power of two apart, and more of them would
    // take more than the ways that the first-level cache has for such addresses.
    for (int64_t half = 0; half < lanes; half += side) {
      const T* const first = from + half * next;
      for (int64_t k = 0; k < whole; k += side) {
        if (k % lanes == 0) {
          for (int64_t i = 0; i < side; ++i)
            __builtin_prefetch(first + i * next + k + kFetched / sizeof(T));
        }
        turn_square(first + k, next, to + k * lanes + half, lanes);
      }
    }
    for (int64_t k = whole; k < numbers; ++k) {
      for (int64_t i = 0; i < count; ++i) to[k * lanes + i] = from[i * next + k];
    }
  } else {
    const int64_t step = lines.step * parts, rows = numbers / parts;
    for (int64_t k = 0; k < rows; ++k) {
      const T* const row = from + k * step;
      if (count == lanes) {
        if (k + kAhead < rows) fetch_row<T, kReal, 0>(row + kAhead * step);
        load_row<T, kReal>(row, to + k * parts * lanes);
        continue;
      }
      for (int64_t i = 0; i < count * parts; ++i) {
        to[(k * parts + i % parts) * lanes + i / parts] = row[i];
      }
    }
  }
  if (count == lanes) return;
  for (int64_t k = 0; k < numbers; ++k) {
    std::fill(to + k * lanes + count, to + (k + 1) * lanes, T(0));
  }
}

template <class T, bool kReal>
[[gnu::always_inline]] inline void store_lines(const T* from, int64_t count, int64_t n, T* to,
                                               const LineGeometry& lines, bool streams) {
  constexpr int64_t lanes = kSideBySide<T>, side = kHalf<T>, parts = kReal ? 1 : 2;
  const int64_t numbers = 2 * n;
  if (lines.step == 1) {
    const int64_t next = lines.next * parts, whole = count == lanes ? numbers / side * side : 0;
    // Whole cache lines of all rows.
    const bool lines_fit =
        (reinterpret_cast<uintptr_t>(to) | static_cast<uintptr_t>(next) * sizeof(T)) % 64 == 0;
    const int64_t streamed = streams && lines_fit ? whole / lanes * lanes : 0;
    for (int64_t half = 0; half < lanes; half += side) {
      for (int64_t k = 0; k < streamed; k += lanes) {
        stream_squares(from + k * lanes + half, lanes, to + half * next + k, next);
      }
      for (int64_t k = streamed; k < whole; k += side) {
        turn_square(from + k * lanes + half, lanes, to + half * next + k, next);
      }
    }
#if defined(__SSE2__)
    if (streamed != 0) _mm_sfence();
#endif
    for (int64_t k = whole; k < numbers; ++k) {
      for (int64_t i = 0; i < count; ++i) to[i * next + k] = from[k * lanes + i];
    }
    return;
  }
  const int64_t step = lines.step * parts, rows = numbers / parts;
  for (int64_t k = 0; k < rows; ++k) {
    T* const row = to + k * step;
    if (count == lanes) {
      if (k + kAhead < rows) fetch_row<T, kReal, 1>(row + kAhead * step);
      store_row<T, kReal>(from + k * parts * lanes, row);
      continue;
    }
    for (int64_t i = 0; i < count * parts; ++i) {
      row[i] = from[(k * parts + i % parts) * lanes + i / parts];
    }
  }
}

}  // namespace

#define MYTORCH_LANES(T, kReal, suffix)                                                           \
  MYTORCH_FFTW_VECTORS static void load_##suffix(const T* from, const LineGeometry& lines,        \
                                                 int64_t count, int64_t n, T* to) {               \
    load_lines<T, kReal>(from, lines, count, n, to);                                              \
  }                                                                                               \
  MYTORCH_FFTW_VECTORS static void store_##suffix(const T* from, int64_t count, int64_t n, T* to, \
                                                  const LineGeometry& lines, bool streams) {      \
    store_lines<T, kReal>(from, count, n, to, lines, streams);                                    \
  }                                                                                               \
  template <>                                                                                     \
  void load_points<T, kReal>(const T* from, const LineGeometry& lines, int64_t count, int64_t n,  \
                             Point<T>* to) {                                                      \
    load_##suffix(from, lines, count, n, reinterpret_cast<T*>(to));                               \
  }                                                                                               \
  template <>                                                                                     \
  void store_points<T, kReal>(const Point<T>* from, int64_t count, int64_t n, T* to,              \
                              const LineGeometry& lines, bool streams) {                          \
    store_##suffix(reinterpret_cast<const T*>(from), count, n, to, lines, streams);               \
  }
MYTORCH_LANES(float, true, float_numbers)
MYTORCH_LANES(float, false, float_points)
MYTORCH_LANES(double, true, double_numbers)
MYTORCH_LANES(double, false, double_points)
#undef MYTORCH_LANES

}  // namespace mytorch::fftw
