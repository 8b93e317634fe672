#include "backends/cpu-fftw/fourier/arithmetic.h"

#include <algorithm>

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

// The pairs of `n` elements from k on and from m - k down, as arrays of their parts.
template <class T, int n>
struct Pairs {
  T ar[n], ai[n], br[n], bi[n], wr[n], wi[n];

  [[gnu::always_inline]] inline void load(const T* x, const T* roots, int64_t m, int64_t k) {
    for (int i = 0; i < n; ++i) {
      ar[i] = x[2 * (k + i)], ai[i] = x[2 * (k + i) + 1];
      wr[i] = roots[2 * (k + i)], wi[i] = roots[2 * (k + i) + 1];
    }
    const T* const last = x + 2 * (m - k - (n - 1));
    for (int i = 0; i < n; ++i) br[n - 1 - i] = last[2 * i], bi[n - 1 - i] = last[2 * i + 1];
  }
  [[gnu::always_inline]] inline void store(T* x, int64_t m, int64_t k) const {
    for (int i = 0; i < n; ++i) x[2 * (k + i)] = ar[i], x[2 * (k + i) + 1] = ai[i];
    T* const last = x + 2 * (m - k - (n - 1));
    for (int i = 0; i < n; ++i) last[2 * i] = br[n - 1 - i], last[2 * i + 1] = bi[n - 1 - i];
  }
  // With even = (a + conj(b)) / 2 and odd = (a - conj(b)) / 2i, a = even + w odd and b is the
  // conjugate of even - w odd.
  [[gnu::always_inline]] inline void separate() {
    for (int i = 0; i < n; ++i) {
      const T er = T(0.5) * (ar[i] + br[i]), ei = T(0.5) * (ai[i] - bi[i]);
      const T odd_r = T(0.5) * (ai[i] + bi[i]), odd_i = T(0.5) * (br[i] - ar[i]);
      const T tr = odd_r * wr[i] - odd_i * wi[i], ti = odd_r * wi[i] + odd_i * wr[i];
      ar[i] = er + tr, ai[i] = ei + ti;
      br[i] = er - tr, bi[i] = ti - ei;
    }
  }
  [[gnu::always_inline]] inline void unite() {
    for (int i = 0; i < n; ++i) {
      const T er = ar[i] + br[i], ei = ai[i] - bi[i];
      const T dr = ar[i] - br[i], di = ai[i] + bi[i];
      const T tr = dr * wr[i] - di * wi[i], ti = dr * wi[i] + di * wr[i];
      ar[i] = er - ti, ai[i] = ei + tr;
      br[i] = er + ti, bi[i] = tr - ei;
    }
  }
};

// Separates or unites all pairs, of eight elements at once where those do not overlap.
template <bool separates, class T>
[[gnu::always_inline]] inline void each_pair(const T* from, const T* roots, int64_t m,
                                             int64_t begin, int64_t end, T* to) {
  constexpr int kPairs = 8;
  int64_t k = begin;
  for (; k + kPairs <= end && k + kPairs - 1 < m - k - (kPairs - 1); k += kPairs) {
    Pairs<T, kPairs> pairs;
    pairs.load(from, roots, m, k);
    separates ? pairs.separate() : pairs.unite();
    pairs.store(to, m, k);
  }
  for (; k < end; ++k) {
    Pairs<T, 1> pair;
    pair.load(from, roots, m, k);
    separates ? pair.separate() : pair.unite();
    pair.store(to, m, k);
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
