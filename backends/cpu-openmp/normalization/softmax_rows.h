// Softmax and log-softmax over rows of floats or doubles, and the row functions of cross-entropy.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// Rows of contiguous elements, `step` elements apart.
template <class T>
struct Rows {
  T* first;
  int64_t step;
};

// Functions of `count` rows of n elements. `to` may be `from`. With `non_temporal`, results that
// are whole cache lines are written with non-temporal stores; call stream_fence() afterwards.
template <class T>
struct SoftmaxKernels {
  using Unary = void (*)(Rows<const T> from, Rows<T> to, int64_t count, int64_t n,
                         bool non_temporal);
  using Binary = void (*)(Rows<const T> g, Rows<const T> y, Rows<T> to, int64_t count, int64_t n,
                          bool non_temporal);
  Unary softmax, log_softmax;
  Binary softmax_gradient;      // y * (g - sum(g * y))
  Binary log_softmax_gradient;  // g - exp(y) * sum(g)
  // The maximum of each row, and the sum of exp(x - maximum).
  void (*power_sums)(Rows<const T> from, int64_t count, int64_t n, T* most, T* sum);
  // exp(x - shift) * factor - off, with one number of each per row.
  void (*powers)(Rows<const T> from, Rows<T> to, int64_t count, int64_t n, const T* shift,
                 const T* factor, const T* off, bool non_temporal);
};

// Returns the functions of the best instruction set of this CPU; T is float or double.
template <class T>
const SoftmaxKernels<T>& softmax_kernels();

}  // namespace mytorch::cpu
