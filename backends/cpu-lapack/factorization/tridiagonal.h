// Eigenvectors of small symmetric tridiagonal matrices. LAPACK's divide and conquer spends most of
// its time on calls for them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace mytorch::lapack {

// Columns are padded to a multiple of this, so that loops over them have no rest.
inline constexpr int64_t kColumnUnit = 8;

// Rotates two columns: (x, y) := (c x - s y, s x + c y).
template <class T>
inline void rotate_columns(T* __restrict x, T* __restrict y, T c, T s, int64_t length) {
  for (int64_t k = 0; k < length; k += kColumnUnit) {
    for (int64_t j = k; j < k + kColumnUnit; ++j) {
      const T a = x[j], b = y[j];
      x[j] = c * a - s * b;
      y[j] = s * a + c * b;
    }
  }
}

// Computes the eigenvalues, ascending, of the tridiagonal matrix with diagonal d and the n - 1
// elements e beside it, and multiplies the matrix `columns` by the eigenvectors, by the implicit QL
// method (EISPACK's tql2: Bowdler, Martin, Reinsch and Wilkinson, 1968). The elements must be of
// magnitudes around 1 and below. A column has `length` elements, a multiple of kColumnUnit; `e` has
// room for n. Returns false if an eigenvalue does not converge.
template <class T>
bool tridiagonal_eigenvectors(int64_t n, T* d, T* e, T* columns, int64_t length) {
  constexpr T kUnit = std::numeric_limits<T>::epsilon() / 2;
  constexpr T kLeast = std::numeric_limits<T>::min();
  e[n - 1] = 0;
  int64_t left = 30 * n;
  for (int64_t first = 0; first < n; ++first) {
    for (;;) {
      int64_t last = first;  // of a block whose elements beside the diagonal are not negligible
      while (last + 1 < n &&
             e[last] * e[last] >
                 kUnit * std::abs(d[last]) * (kUnit * std::abs(d[last + 1])) + kLeast) {
        ++last;
      }
      if (last == first) break;
      if (left-- == 0) return false;
      // Wilkinson's shift, from the corner at `first`.
      T g = (d[first + 1] - d[first]) / (2 * e[first]);
      g = d[last] - d[first] + e[first] / (g + std::copysign(std::sqrt(g * g + 1), g));
      T s = 1, c = 1, p = 0;
      int64_t i = last - 1;
      for (; i >= first; --i) {
        const T f = s * e[i], b = c * e[i];
        const T size = std::sqrt(f * f + g * g);
        e[i + 1] = size;
        if (size == 0) break;  // by underflow: the block splits here
        s = f / size;
        c = g / size;
        g = d[i + 1] - p;
        const T r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        rotate_columns(columns + i * length, columns + (i + 1) * length, c, s, length);
      }
      if (i >= first) {
        d[i + 1] -= p;
      } else {
        d[first] -= p;
        e[first] = g;
      }
      e[last] = 0;
    }
  }
  for (int64_t i = 0; i + 1 < n; ++i) {
    const int64_t least = std::min_element(d + i, d + n) - d;
    if (least == i) continue;
    std::swap(d[i], d[least]);
    std::swap_ranges(columns + i * length, columns + (i + 1) * length, columns + least * length);
  }
  return true;
}

}  // namespace mytorch::lapack
