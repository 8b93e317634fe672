// Inner products of complex vectors.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// Adds to sum[0] and sum[1] the real and the imaginary part of the sum of conj(a[i]) * b[i] over n
// complex numbers, whose parts alternate.
template <class T>
struct InnerProducts {
  void (*conjugated)(const T* a, const T* b, int64_t n, double* sum);
};

// Returns the functions of the best instruction set of this CPU; T is float or double.
template <class T>
const InnerProducts<T>& inner_products();

}  // namespace mytorch::cpu
