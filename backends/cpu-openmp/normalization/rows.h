// Sums over contiguous rows of floats or doubles, and normalization with them.
#pragma once

#include <cmath>
#include <cstdint>

namespace mytorch::cpu {

// Whether rows of `bytes` bytes, `step` bytes apart, consist of whole cache lines, so that they may
// be stored past the caches.
inline bool whole_lines(const void* first, int64_t step, int64_t bytes) {
  return (reinterpret_cast<uintptr_t>(first) | static_cast<uintptr_t>(step | bytes)) % 64 == 0;
}

// A mean to take distances from. From an infinity they would be NaN, also where the mean is not.
template <class T>
T center_of(T sum, int64_t n) {
  const T center = sum / static_cast<T>(n);
  return std::isfinite(center) ? center : T(0);
}

// What may bind a row to its neighbours: rows that come next are fetched while this one is worked
// on, and results that are not read soon go past the caches.
template <class T>
struct RowContext {
  const T* next = nullptr;        // of the first operand, and
  const T* next_other = nullptr;  // of the second; NULL where there is none
  bool past = false;              // the result consists of whole cache lines
};

template <class T>
struct NormGradient {
  const T* g;
  const T* x;
  T mean, rstd;
  bool centered;    // false: of a root mean square, whose mean is 0, whatever x is
  const T* weight;  // or NULL
  // These get g * (x - mean) * rstd, and g, added element by element; NULL where not wanted, the
  // second alone, too.
  T* weight_sum;
  T* bias_sum;
  T* to;  // or NULL
};

#define MYTORCH_CPU_ROWS(T)                                                                \
  /* The sum of x - center, and of its squares. */                                         \
  void moments_row(const T* x, int64_t n, T center, T* sum, T* squares);                   \
  /* The sums of g and of g * (x - mean). */                                               \
  void sums_row(const T* g, const T* x, int64_t n, T mean, T* sum, T* product);            \
  /* (x - mean) * scale + shift */                                                         \
  void scale_row(const T* x, int64_t n, T mean, T scale, T shift, T* to);                  \
  /* a * g + b * (x - mean) + c */                                                         \
  void combine_row(const T* g, const T* x, int64_t n, T mean, T a, T b, T c, T* to);       \
  /* ((x - mean) * rstd) * weight + bias, each of which may be NULL, as may be `to`. */    \
  /* Where `mean` is NULL, 0 takes its place: the root mean square. */                     \
  void layer_norm_row(const T* x, int64_t n, T eps, const T* weight, const T* bias, T* to, \
                      T* mean, T* rstd, const RowContext<T>& context);                     \
  /* Of the row and, in part, of the parameters. */                                        \
  void norm_gradient_row(const NormGradient<T>& row, int64_t n, const RowContext<T>& context)
MYTORCH_CPU_ROWS(float);
MYTORCH_CPU_ROWS(double);
#undef MYTORCH_CPU_ROWS

}  // namespace mytorch::cpu
