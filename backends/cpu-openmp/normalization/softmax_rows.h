// Softmax over rows of floats or doubles, and what of it cross-entropy needs.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// `count` rows of n elements, `step` elements apart.
template <class T>
struct Rows {
  T* first;
  int64_t step;
};

// With `past`, results that are whole cache lines go past the caches; call stream_fence() then.
// `to` may be `from`.
#define MYTORCH_CPU_SOFTMAX(T)                                                                \
  void softmax_rows(Rows<const T> from, Rows<T> to, int64_t count, int64_t n, bool past);     \
  void log_softmax_rows(Rows<const T> from, Rows<T> to, int64_t count, int64_t n, bool past); \
  /* y * (g - sum(g * y)) */                                                                  \
  void softmax_gradient_rows(Rows<const T> g, Rows<const T> y, Rows<T> to, int64_t count,     \
                             int64_t n, bool past);                                           \
  /* g - exp(y) * sum(g) */                                                                   \
  void log_softmax_gradient_rows(Rows<const T> g, Rows<const T> y, Rows<T> to, int64_t count, \
                                 int64_t n, bool past);                                       \
  /* Of each row the largest element and the sum of exp(x - it). */                           \
  void power_sum_rows(Rows<const T> from, int64_t count, int64_t n, T* most, T* sum);         \
  /* exp(x - shift) * factor - off, with a number of each for every row. */                   \
  void power_rows(Rows<const T> from, Rows<T> to, int64_t count, int64_t n, const T* shift,   \
                  const T* factor, const T* off, bool past)
MYTORCH_CPU_SOFTMAX(float);
MYTORCH_CPU_SOFTMAX(double);
#undef MYTORCH_CPU_SOFTMAX

}  // namespace mytorch::cpu
