#include "backends/cpu-fftw/fourier/arithmetic.h"

#include <cstring>

namespace mytorch::fftw {
namespace {

template <class T>
[[gnu::always_inline]] inline void multiply_parts(const T* a, const T* b, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) {
    const T ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];
    to[2 * i] = ar * br - ai * bi;
    to[2 * i + 1] = ar * bi + ai * br;
  }
}

template <class T>
[[gnu::always_inline]] inline void turn_parts(T* to, int64_t n, const T* fine, const T* coarse) {
  const int64_t blocks = n / 16;
  for (int64_t b = 0; b < blocks; ++b) {
    const T cr = coarse[2 * b], ci = coarse[2 * b + 1];
    T* x = to + 32 * b;
    for (int64_t k = 0; k < 16; ++k) {
      const T wr = fine[2 * k] * cr - fine[2 * k + 1] * ci;
      const T wi = fine[2 * k] * ci + fine[2 * k + 1] * cr;
      const T xr = x[2 * k], xi = x[2 * k + 1];
      x[2 * k] = xr * wr - xi * wi;
      x[2 * k + 1] = xr * wi + xi * wr;
    }
  }
  for (int64_t k = 16 * blocks; k < n; ++k) {
    const T *f = fine + 2 * (k - 16 * blocks), *c = coarse + 2 * blocks;
    const T wr = f[0] * c[0] - f[1] * c[1], wi = f[0] * c[1] + f[1] * c[0];
    const T xr = to[2 * k], xi = to[2 * k + 1];
    to[2 * k] = xr * wr - xi * wi;
    to[2 * k + 1] = xr * wi + xi * wr;
  }
}

// With a = x[k], b = x[m - k], even = (a + conj(b)) / 2 and odd = (a - conj(b)) / 2i, the results
// are even + w odd and the conjugate of even - w odd. The inverse has i w (a - conj(b)) in place of
// w odd.
template <bool separates, class T>
[[gnu::always_inline]] inline void one_pair(const T* a, const T* b, const T* w, T* to, T* to_last) {
  const T half = separates ? T(0.5) : T(1);
  const T er = half * (a[0] + b[0]), ei = half * (a[1] - b[1]);
  const T dr = half * (a[0] - b[0]), di = half * (a[1] + b[1]);
  const T xr = separates ? di : dr, xi = separates ? -dr : di;
  const T yr = xr * w[0] - xi * w[1], yi = xi * w[0] + xr * w[1];
  const T tr = separates ? yr : -yi, ti = separates ? yi : yr;
  to[0] = er + tr, to[1] = ei + ti;
  to_last[0] = er - tr, to_last[1] = ti - ei;
}

// The same for all pairs, in vectors of the elements from k on and from m - k down where those do
// not overlap.
template <bool separates, class T>
[[gnu::always_inline]] inline void each_pair(const T* from, const T* roots, int64_t m,
                                             int64_t begin, int64_t end, T* to) {
  constexpr int64_t kBytes = 32, kPairs = kBytes / static_cast<int64_t>(2 * sizeof(T));
  typedef T Vector __attribute__((vector_size(kBytes)));
  Vector conjugating, turning;  // (1, -1), (-1, 1)
  for (int i = 0; i < 2 * kPairs; ++i) {
    conjugating[i] = i % 2 == 0 ? T(1) : T(-1);
    turning[i] = -conjugating[i];
  }
  const auto reverse = [](Vector & x) __attribute__((always_inline)) {  // the complex numbers
    if constexpr (kPairs == 4) {
      x = __builtin_shufflevector(x, x, 6, 7, 4, 5, 2, 3, 0, 1);
    } else {
      x = __builtin_shufflevector(x, x, 2, 3, 0, 1);
    }
  };
  // (real, imaginary) to (first, second) of each number, chosen by 0 and 1.
  const auto exchange = [](const Vector& x, Vector& y) __attribute__((always_inline)) {
    if constexpr (kPairs == 4) {
      y = __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
    } else {
      y = __builtin_shufflevector(x, x, 1, 0, 3, 2);
    }
  };
  const auto split = [](const Vector& x, Vector& re, Vector& im) __attribute__((always_inline)) {
    if constexpr (kPairs == 4) {
      re = __builtin_shufflevector(x, x, 0, 0, 2, 2, 4, 4, 6, 6);
      im = __builtin_shufflevector(x, x, 1, 1, 3, 3, 5, 5, 7, 7);
    } else {
      re = __builtin_shufflevector(x, x, 0, 0, 2, 2);
      im = __builtin_shufflevector(x, x, 1, 1, 3, 3);
    }
  };
  int64_t k = begin;
  for (; k + kPairs <= end && k + kPairs - 1 < m - k - (kPairs - 1); k += kPairs) {
    const int64_t last = m - k - (kPairs - 1);
    Vector a, b, w, wr, wi, x, y;
    std::memcpy(&a, from + 2 * k, kBytes);
    std::memcpy(&b, from + 2 * last, kBytes);
    std::memcpy(&w, roots + 2 * k, kBytes);
    reverse(b);
    split(w, wr, wi);
    b *= conjugating;
    Vector even = a + b, t = a - b;
    if (separates) {
      even *= T(0.5);
      t *= T(0.5);
      exchange(t, x);
      t = x * conjugating;
    }
    exchange(t, y);
    t = t * wr + y * (wi * turning);
    if (!separates) {
      exchange(t, y);
      t = y * turning;
    }
    a = even + t;
    b = (even - t) * conjugating;
    reverse(b);
    std::memcpy(to + 2 * k, &a, kBytes);
    std::memcpy(to + 2 * last, &b, kBytes);
  }
  for (; k < end; ++k) {
    const T a[2] = {from[2 * k], from[2 * k + 1]},
            b[2] = {from[2 * (m - k)], from[2 * (m - k) + 1]};
    one_pair<separates>(a, b, roots + 2 * k, to + 2 * k, to + 2 * (m - k));
  }
}

template <class T>
const T* parts(const Complex<T>* x) {
  return reinterpret_cast<const T*>(x);
}
template <class T>
T* parts(Complex<T>* x) {
  return reinterpret_cast<T*>(x);
}

}  // namespace

MYTORCH_FFTW_VECTORS void multiply(const Complex<float>* a, const Complex<float>* b, int64_t n,
                                   Complex<float>* to) {
  multiply_parts(parts(a), parts(b), n, parts(to));
}
MYTORCH_FFTW_VECTORS void multiply(const Complex<double>* a, const Complex<double>* b, int64_t n,
                                   Complex<double>* to) {
  multiply_parts(parts(a), parts(b), n, parts(to));
}
MYTORCH_FFTW_VECTORS void turn(Complex<float>* to, int64_t n, const Complex<float>* fine,
                               const Complex<float>* coarse) {
  turn_parts(parts(to), n, parts(fine), parts(coarse));
}
MYTORCH_FFTW_VECTORS void turn(Complex<double>* to, int64_t n, const Complex<double>* fine,
                               const Complex<double>* coarse) {
  turn_parts(parts(to), n, parts(fine), parts(coarse));
}

MYTORCH_FFTW_VECTORS void separate(const Complex<float>* from, const Complex<float>* roots,
                                   int64_t m, int64_t begin, int64_t end, Complex<float>* to) {
  each_pair<true>(parts(from), parts(roots), m, begin, end, parts(to));
}
MYTORCH_FFTW_VECTORS void separate(const Complex<double>* from, const Complex<double>* roots,
                                   int64_t m, int64_t begin, int64_t end, Complex<double>* to) {
  each_pair<true>(parts(from), parts(roots), m, begin, end, parts(to));
}
MYTORCH_FFTW_VECTORS void unite(const Complex<float>* from, const Complex<float>* roots, int64_t m,
                                int64_t begin, int64_t end, Complex<float>* to) {
  each_pair<false>(parts(from), parts(roots), m, begin, end, parts(to));
}
MYTORCH_FFTW_VECTORS void unite(const Complex<double>* from, const Complex<double>* roots,
                                int64_t m, int64_t begin, int64_t end, Complex<double>* to) {
  each_pair<false>(parts(from), parts(roots), m, begin, end, parts(to));
}

}  // namespace mytorch::fftw
