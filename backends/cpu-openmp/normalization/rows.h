// Sums over contiguous rows of floats or doubles, and normalization with them.
#pragma once

#include <cmath>
#include <cstdint>

namespace mytorch::cpu {

// Whether rows of `bytes` bytes, `step` bytes apart, consist of whole cache lines, so that they may
// be written with non-temporal stores.
inline bool whole_lines(const void* first, int64_t step, int64_t bytes) {
  return (reinterpret_cast<uintptr_t>(first) | static_cast<uintptr_t>(step | bytes)) % 64 == 0;
}

// Returns an approximate mean to subtract: 0 if the sum is not finite, because distances from
// infinity are NaN even if the mean is not.
template <class T>
T center_of(T sum, int64_t n) {
  const T center = sum / static_cast<T>(n);
  return std::isfinite(center) ? center : T(0);
}

// The relation of a row to its neighbors: the next rows, which are prefetched while this one is
// computed, and whether results are written with non-temporal stores.
template <class T>
struct RowContext {
  const T* next = nullptr;        // of the first operand, or NULL
  const T* next_other = nullptr;  // of the second operand, or NULL
  bool non_temporal = false;      // requires whole_lines()
};

// One row of the gradient of layer normalization.
template <class T>
struct NormGradient {
  const T* g;
  const T* x;
  T mean, rstd;
  bool centered;    // false: root mean square normalization, in which the mean is 0
  const T* weight;  // or NULL
  // Receive sums over rows: g * (x - mean) * rstd and g are added element by element. Both or
  // `bias_sum` alone may be NULL.
  T* weight_sum;
  T* bias_sum;
  T* to;           // the gradient of the input, or NULL
  const T* added;  // to the gradient of the input; or NULL
};

template <class T>
struct RowKernels {
  // The sum of x - center, and of its squares.
  void (*moments)(const T* x, int64_t n, T center, T* sum, T* squares);
  // The sums of g and of g * (x - mean).
  void (*sums)(const T* g, const T* x, int64_t n, T mean, T* sum, T* product);
  // to = (x - mean) * scale + shift
  void (*scale)(const T* x, int64_t n, T mean, T scale, T shift, T* to);
  // to = a * g + b * (x - mean) + c
  void (*combine)(const T* g, const T* x, int64_t n, T mean, T a, T b, T c, T* to);
  // to = x + y
  void (*add)(const T* x, const T* y, int64_t n, T* to);
  // to = (x - mean) * rstd * weight + bias; `weight`, `bias` and `to` may be NULL. Root mean square
  // normalization passes NULL for `mean`, which is then 0.
  void (*layer_norm)(const T* x, int64_t n, T eps, const T* weight, const T* bias, T* to, T* mean,
                     T* rstd, const RowContext<T>& context);
  void (*norm_gradient)(const NormGradient<T>& row, int64_t n, const RowContext<T>& context);
};

// Returns the functions of the best instruction set of this CPU; T is float or double.
template <class T>
const RowKernels<T>& row_kernels();

}  // namespace mytorch::cpu
