// Normalizations of one dense row, for float and double. A row is read from memory once: what is
// read again is in the L1 by then. `to` may be `from`.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

#define MYTORCH_CPU_ROWS(T)                                                                 \
  void softmax_row(const T* from, int64_t n, T* to);                                        \
  void log_softmax_row(const T* from, int64_t n, T* to);                                    \
  /* y * (g - sum(g * y)) */                                                                \
  void softmax_gradient_row(const T* g, const T* y, int64_t n, T* to);                      \
  /* g - exp(y) * sum(g) */                                                                 \
  void log_softmax_gradient_row(const T* g, const T* y, int64_t n, T* to);                  \
  /* The sum of x, and of the squared distances from `mean`. */                             \
  T sum_row(const T* x, int64_t n);                                                         \
  T spread_row(const T* x, int64_t n, T mean);                                              \
  /* The sums of g and of g * (x - mean). */                                                \
  void sums_row(const T* g, const T* x, int64_t n, T mean, T* sum, T* product);             \
  /* ((x - mean) * rstd) * weight + bias, either of which may be NULL. */                   \
  void normalize_row(const T* x, int64_t n, T mean, T rstd, const T* weight, const T* bias, \
                     T* to);                                                                \
  /* (x - mean) * scale + shift */                                                          \
  void scale_row(const T* x, int64_t n, T mean, T scale, T shift, T* to);                   \
  /* a * g + b * (x - mean) + c */                                                          \
  void combine_row(const T* g, const T* x, int64_t n, T mean, T a, T b, T c, T* to);        \
  /* weight_sum += g * (x - mean) * rstd, bias_sum += g, element by element. */             \
  void parameter_row(const T* g, const T* x, int64_t n, T mean, T rstd, T* weight_sum, T* bias_sum)
MYTORCH_CPU_ROWS(float);
MYTORCH_CPU_ROWS(double);
#undef MYTORCH_CPU_ROWS

}  // namespace mytorch::cpu
